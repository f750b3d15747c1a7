"""`vipu-server` as a process: its messages, and every way in which it begins, ends, and is
killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwright import wire
from podwright.client import Client, UnixTransport

COMMAND = (sys.executable, "-m", "podwright.cli.vipu_server")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PODWRIGHT_")}
    return {
        **kept,
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_STATE_HOME": str(folder / "state"),
    }


@pytest.fixture
def start(folder: Path, environ: dict[str, str]) -> Iterator[Start]:
    """Starts a server on a socket, a store and a port of its own; ends what is left."""
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str, store: str = "db", path: str = "s") -> subprocess.Popen[str]:
        where = ["--socket", str(folder / path), "--storage", str(folder / store)]
        process = subprocess.Popen(
            [*COMMAND, *where, "--api-port", "0", *options],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def _client(path: Path) -> Client:
    return Client(UnixTransport(str(path)))


def _until(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.01)


def _until_ended(pid: int) -> None:
    """Wait until a process that is not our child has ended.

    It may stay a zombie for as long as init takes to reap it, so its state decides, not the
    existence of its entry in /proc.
    """
    proc = Path(f"/proc/{pid}")

    def read(name: str) -> str:
        with contextlib.suppress(OSError):
            return (proc / name).read_text()
        return ""

    try:
        _until(lambda: read("stat").rpartition(")")[2].split()[:1] in ([], ["Z"], ["X"]))
    except TimeoutError:
        threads = [path.read_text() for path in proc.glob("task/*/wchan")]
        pytest.fail(f"process {pid} runs on: {threads}\n{read('status')}")


def _answers(path: Path) -> bool:
    try:
        with _client(path) as client:
            client.get_server_info()
    except wire.Unavailable:
        return False
    return True


def test_the_server_says_what_it_serves_and_where(start: Start, folder: Path) -> None:
    process = start("--preset", "pod16")
    line = _line(process)
    with _client(folder / "s") as client:
        info = client.get_server_info()
    assert f"pod16 (16 IPUs, SIMULATED) on 127.0.0.1:{info.port} and {folder}/s" in line
    assert info.simulated
    assert info.pid == process.pid
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "", "")
    assert sorted(os.listdir(folder)) == ["db"]


def test_the_server_raises_its_limit_of_descriptors(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "COMMAND", ["prlimit", "--nofile=100:700", *COMMAND])
    process = start("--preset", "pod16")
    assert str(folder) in _line(process)
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (700, 700)


def test_a_server_without_a_preset_waits_for_an_administrator(start: Start, folder: Path) -> None:
    assert "no cluster yet (vipu-admin create cluster)" in _line(start())
    with _client(folder / "s") as client:
        assert client.list_clusters() == []
        assert not client.get_server_info().simulated


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_in_order(start: Start, folder: Path, number: int) -> None:
    process = start("--preset", "pod4")
    assert "pod4" in _line(process)
    process.send_signal(number)
    assert process.wait(300) == 0


def test_a_killed_server_goes_on_where_it_was(start: Start, folder: Path) -> None:
    process = start("--preset", "pod64")
    _line(process)
    with _client(folder / "s") as client:
        client.create_partition(wire.PartitionSpec(name="p1", size=4))
        client.create_partition(wire.PartitionSpec(name="p2", size=8), wait=False)
        held = client.acquire(
            wire.AcquireRequest(spec=wire.PartitionSpec(name="p1", size=4), keep=True, ttl=600)
        )
    process.kill()
    process.communicate()
    process = start()  # without the preset: the store knows
    assert "pod64 (64 IPUs, SIMULATED)" in _line(process)
    with _client(folder / "s") as client:
        _until(
            lambda: client.get_partition("p2").ready_state is wire.ReadyState.ACTIVE,
        )
        assert client.get_partition("p1").leases[0].id == held.lease.id
        client.renew(held.lease.id, held.lease.epoch)
        with pytest.raises(wire.AlreadyExists):
            client.create_partition(wire.PartitionSpec(name="p1", size=4))


def test_a_store_in_use_refuses_another_preset(start: Start, folder: Path) -> None:
    process = start("--preset", "pod64")
    _line(process)
    with _client(folder / "s") as client:
        client.create_partition(wire.PartitionSpec(name="p1", size=4))
    process.terminate()
    process.communicate(timeout=300)
    process = start("--preset", "pod16")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert err.count("\n") == 1
    assert "holds partitions of pod64, not of pod16" in err
    assert sorted(os.listdir(folder)) == ["db"]


def test_a_second_server_is_refused_and_the_first_undisturbed(start: Start, folder: Path) -> None:
    first = start("--preset", "pod4")
    _line(first)
    for options, what in (
        ({"store": "db2"}, f"uses the socket {folder}/s"),
        ({"path": "s2"}, f"uses the store {folder}/db"),
    ):
        second = start(**options)
        _, err = second.communicate(timeout=300)
        assert second.returncode == 1
        assert f"another server (process {first.pid}) {what}" in err
        assert err.count("\n") == 1
    assert _answers(folder / "s")


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--preset", "pod15"], 2, "Choose one of pod4, pod8, pod16, pod32, pod64, pod128, pod256"),
        (["--prest", "pod16"], 2, "did you mean '--preset'?"),
        (["--api-port", "70000"], 2, "port from 1 to 65535"),
        (["--api-host", "0.0.0.0"], 2, "--listen-anywhere"),
        (["--idle-seconds", "0"], 2, "time in seconds above 0"),
        (["--preset", "pod4", "--cluster-file", "x"], 2, "not allowed with"),
        (["--cluster-file", "/nonexistent.toml"], 2, "/nonexistent.toml"),
        (["--api-host", "192.0.2.1", "--listen-anywhere"], 69, "no address of this machine"),
        (["--storage", "/proc/nowhere/db"], 69, "cannot use /proc/nowhere"),
        (["--socket", "/tmp/" + "x" * 120], 2, "too long"),
        (["extra"], 2, "unexpected 'extra'"),
    ],
)
def test_bad_input_gets_one_line(
    start: Start, folder: Path, options: list[str], code: int, says: str
) -> None:
    process = start(*options)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code
    assert says in err
    assert err.startswith("vipu-server: ")
    assert (err.count("\n"), out) == (1, "")
    assert not (folder / "s").exists()


def test_a_damaged_store_is_left_as_it_is(start: Start, folder: Path) -> None:
    (folder / "db").write_bytes(b"these are not the pages you are looking for" * 99)
    process = start()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 69
    assert str(folder / "db") in err
    assert (folder / "db").read_bytes().startswith(b"these are")


def test_a_users_server_is_silent_private_and_gone_when_idle(
    environ: dict[str, str], folder: Path
) -> None:
    (folder / "run").mkdir(mode=0o700)
    path = folder / "run/podwright/server.sock"

    def made() -> bool:
        """Start one and give it something to stay for; a slow machine may find it gone by then."""
        done = subprocess.run(  # detaches: it returns at once, and pipes are let go
            [*COMMAND, "--user", "--idle-seconds", "0.3"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        assert (done.stdout, done.stderr) == ("", "")
        with contextlib.suppress(wire.Unavailable, TimeoutError):
            _until(lambda: _answers(path), 5)
            with _client(path) as client:
                client.create_partition(wire.PartitionSpec(name="p1", size=4))
            return True
        return False

    _until(made)
    with _client(path) as client:
        info = client.get_server_info()
        assert (info.clusters, info.caller) == (["pod16"], client.get_server_info().caller)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        time.sleep(0.5)  # longer than its idle time: it must stay while there is a partition
        assert client.get_partition("p1").owner == info.caller
        client.remove_partition("p1")
    _until_ended(info.pid)
    assert os.listdir(folder / "run") == []


def test_of_two_users_servers_one_yields(environ: dict[str, str], folder: Path) -> None:
    (folder / "run").mkdir(mode=0o700)
    path = folder / "run/podwright/server.sock"
    both = [
        subprocess.Popen([*COMMAND, "--user"], env=environ, start_new_session=True)
        for _ in range(2)
    ]
    _until(lambda: any(process.poll() is not None for process in both) and _answers(path))
    codes = [process.poll() for process in both]
    assert sorted(codes, key=str) == [0, None]
    with _client(path) as client:
        assert client.get_server_info().pid in [process.pid for process in both]
    for process in both:
        process.terminate()
        assert process.wait(300) == 0
    assert os.listdir(folder / "run") == []


def test_a_users_server_killed_with_partitions_keeps_them(
    environ: dict[str, str], folder: Path
) -> None:
    (folder / "run").mkdir(mode=0o700)
    path = folder / "run/podwright/server.sock"
    for ending in (signal.SIGKILL, signal.SIGTERM, None):
        process = subprocess.Popen([*COMMAND, "--user"], env=environ, start_new_session=True)
        _until(lambda: _answers(path))
        with _client(path) as client:
            if ending is signal.SIGKILL:
                client.create_partition(wire.PartitionSpec(name="p1", size=4))
            assert [p.name for p in client.list_partitions()] == ["p1"]
            if ending is None:
                client.remove_partition("p1")
        process.send_signal(ending or signal.SIGTERM)
        process.wait(300)
    assert os.listdir(folder / "run") == []


def test_the_command_shows_its_version() -> None:
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("vipu-server (Podwright) ")


def test_the_log_is_json_from_the_first_line_to_the_refusal(start: Start, folder: Path) -> None:
    """Every line is one object, and says the value of every field, defaults too."""
    first = start("--preset", "pod4", "--log-format", "json", "--audit-log", "stderr")
    assert "vipu-server" in json.loads(_line(first))["message"]
    with _client(folder / "s") as client:
        client.create_partition(wire.PartitionSpec(name="p1", size=4))
        with pytest.raises(wire.NotFound):
            client.remove_partition("p2")
    made, refused = (json.loads(_line(first)) for _ in range(2))
    assert made["logger"] == refused["logger"] == "podwright.audit"
    assert (made["what"], made["about"], made["outcome"]) == ("CreatePartition", "p1", "OK")
    assert made["detail"] == ""
    assert (refused["about"], refused["outcome"]) == ("p2", "NOT_FOUND")
    second = start("--preset", "pod4", "--log-format", "json", path="s2")
    said = json.loads(_line(second))
    assert (said["level"], said["code"]) == ("ERROR", "ALREADY_EXISTS")
    assert "another server" in said["message"]
    assert second.wait(300) == 1


def test_the_audit_goes_to_syslog(start: Start, folder: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as syslog:
        syslog.bind(("127.0.0.1", 0))
        syslog.settimeout(300)
        where = f"syslog:127.0.0.1:{syslog.getsockname()[1]}"
        _line(start("--preset", "pod4", "--audit-log", where))
        with _client(folder / "s") as client:
            client.create_partition(wire.PartitionSpec(name="p1", size=4))
        said = syslog.recv(4096).decode()
    assert said.startswith("<86>vipu-server: CreatePartition p1 by ")  # authpriv.info
    assert said.rstrip("\0").endswith(": OK")


def test_an_unknown_place_for_the_audit_is_refused(start: Start, folder: Path) -> None:
    process = start("--preset", "pod4", "--audit-log", "syslog:nowhere")
    assert "no place for the audit" in _line(process)
    assert process.wait(300) == 2
