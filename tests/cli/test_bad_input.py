"""Bad input through the command, against a real server: one clear line, the right exit code,
and nothing changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from podwright.cli.vipu import main
from podwright.client import Client, ServerOptions, find_server
from podwright.wire import AcquireRequest, PartitionSpec
from tests.differing_fields import differing_fields


def without_notices(err: str) -> str:
    """Standard error without what every command may say."""
    notices = ("SIMULATED", "No server was running")
    lines = err.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(notices))


class Pod:
    """A simulated POD16 for this test alone, which its environment names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run = folder / "run"
        run.mkdir(mode=0o700)
        self.environ = {
            **os.environ,
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(run),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self.server: int | None = None

    def vipu(self, *words: str) -> tuple[int, str, str]:
        """Return exit code, standard output, and standard error without what every command
        prints.
        """
        done = subprocess.run(
            [sys.executable, "-m", "podwright.cli.vipu", *words],
            env=self.environ, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, without_notices(done.stderr)

    def client(self) -> Client:
        found = find_server(ServerOptions(), self.environ)
        self.server = found.info.pid
        return found.client

    def end(self) -> None:
        if self.server is None:
            self.client().close()
        assert self.server is not None
        os.kill(self.server, signal.SIGTERM)
        deadline = time.monotonic() + 300
        while (self.folder / "run/podwright/server.sock").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def state(client: Client) -> list[object]:
    """Return everything in the server, except what changes with time: the remaining seconds of
    leases."""
    leases = [msgspec.structs.replace(lease, expires_in=0) for lease in client.list_leases()]
    partitions = [msgspec.structs.replace(p, leases=[]) for p in client.list_partitions()]
    return [*partitions, *leases, *client.list_devices()]


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    made = Pod(tmp_path_factory.mktemp("pod"))
    with made.client() as client:
        client.create_partition(PartitionSpec(name="mine", size=4))
        client.create_partition(PartitionSpec(name="busy", size=4))
        client.acquire(
            AcquireRequest(spec=PartitionSpec(name="busy", size=4), holder="poprun 7", ttl=600)
        )
    yield made
    with made.client() as client:
        for lease in client.list_leases():
            client.release(lease.id, lease.epoch)
        for partition in client.list_partitions():
            client.remove_partition(partition.name)
    made.end()


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("create partition p --size 3", 2, ["3 IPUs", "Use a size of 2 or 4"]),
        ("create partition p --size 32", 2, ["32"]),
        ("create partition p --size 16", 75, ["16"]),
        ("create partition p --size 1000000000000", 2, ["1000000000000"]),
        ("create partition p --size 4 --num-gcds 3", 2, ["3"]),
        ("create partition p --size 4 --num-gcds 8", 2, ["8"]),
        ("create partition p --size 4 --num-gcds 4 --num-replicas 3", 2, ["3"]),
        ("create partition p --size 4 --num-ilds 2", 2, ["2"]),
        ("create partition p --size 4 --allocation nope", 1, ["nope", "pod16"]),
        ("create partition p --size 4 --cluster nope", 1, ["nope", "pod16"]),
        ("create partition p --devices 0:0-3 --cluster pod16", 75, ["mine"]),
        ("create partition p --devices 9:0 --cluster pod16", 2, ["9"]),
        ("create partition mine --size 4", 1, ["mine"]),
        ("create partition a/b --size 4", 2, ["a/b"]),
        (f"create partition {'x' * 300} --size 4", 2, ["1 to 64 letters"]),
        ("get partition nope", 1, ["nope", "busy, mine"]),
        ("reset partition nope", 1, ["nope"]),
        ("remove partition nope", 1, ["nope"]),
        ("remove partition busy", 75, ["poprun 7"]),
        ("reset partition busy", 75, ["poprun 7"]),
        ("get partition mine --gcd 1", 1, ["GCD 1"]),
        ("get partition mine --gcd 1 --ipuof-configs", 1, ["GCD 1"]),
        ("remove lease nope", 1, ["nope"]),
        ("list partitions --config /nope.hcl", 2, ["/nope.hcl", "no such file"]),
    ],
)
def test_one_clear_line_and_nothing_changed(
    pod: Pod,
    line: str,
    code: int,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", pod.environ)
    with pod.client() as client:
        before = state(client)
        got = main(line.split())
        changed = differing_fields(state(client), before)
        assert not changed, (
            "a refused command changed the server, or `state` has to leave a time out"
        )
    out, err = capsys.readouterr()
    err = without_notices(err)
    assert (got, out) == (code, ""), err
    assert err.count("\n") == 1
    assert err.startswith("vipu: ")
    for word in words:
        assert word in err


def test_an_empty_name_is_refused_in_one_line(pod: Pod) -> None:
    code, out, err = pod.vipu("create", "partition", "", "--size", "4")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_what_is_anothers_stays_as_it_is(pod: Pod, tmp_path: Path) -> None:
    """Over TCP callers are anonymous. The address is taken from the command's own words."""
    _, out, _ = pod.vipu("--server-version")
    address = out.splitlines()[1].removeprefix("host: ")
    away = Pod(tmp_path)
    code, out, err = away.vipu("-H", address, "remove", "partition", "mine")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "anonymous" in err
    assert [p for p in away.vipu("-H", address, "list", "partitions")[1].split() if p == "mine"]


def test_a_partition_lives_and_ends_by_hand(pod: Pod) -> None:
    assert pod.vipu("create", "partition", "p1", "--size", "4") == (
        0,
        "create partition (p1): success.\n",
        "",
    )
    assert "Size:           4\n" in pod.vipu("get", "partition", "p1")[1]
    assert pod.vipu("reset", "partition", "p1")[1] == "reset partition (p1): success.\n"
    assert pod.vipu("remove", "partition", "p1")[1] == "remove partition (p1): success.\n"
    assert "p1" not in pod.vipu("list", "partitions")[1]


def test_many_commands_that_find_no_server_start_one(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    names = [f"p{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda n: pod.vipu("create", "partition", n, "--size", "4"), names))
    try:
        assert [code for code, _, _ in done] == [0] * 4
        with pod.client() as client:
            assert [p.name for p in client.list_partitions()] == names
            for name in names:
                client.remove_partition(name)
    finally:
        pod.end()
