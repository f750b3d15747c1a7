"""Commands in the workers of a Kubernetes job: the service that runs them, and the call to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwright.guests.kubernetes.workers._worker_call import WorkerUnusable
from podwright.guests.kubernetes.workers._worker_call import call as reach_and_run
from podwright.guests.kubernetes.workers._worker_door import MAX_UNKNOWN_CALLERS, WorkerDoor
from podwright.hosts import KEYS_VARIABLE, WORKER_VARIABLE, WORKERS_VARIABLE, job_workers
from podwright.hosts._kubernetes_workers import worker_ports
from tests.certificates import JOB_KEYS, OTHER_KEYS

Start = Callable[..., subprocess.Popen[bytes]]

DOOR = [sys.executable, "-P", "-m", "podwright.guests.kubernetes.workers._worker_door"]
CALL = [sys.executable, "-P", "-m", "podwright.guests.kubernetes.workers._worker_call"]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The keys of a job."""
    return Path(shutil.copytree(JOB_KEYS, tmp_path / "keys"))


@pytest.fixture
def start(keys: Path) -> Iterator[Start]:
    """Starts a worker. All workers end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def one(name: str, *program: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, WORKER_VARIABLE: name, KEYS_VARIABLE: str(keys)}
        process = subprocess.Popen(
            [*DOOR, *program], env=environ, start_new_session=True, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield one
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def call(
    name: str, keys: Path, *words: str, said: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a worker."""
    environ = {**os.environ, WORKERS_VARIABLE: f"{name}=127.0.0.1", KEYS_VARIABLE: str(keys)}
    return subprocess.run([*CALL, name, *words], env=environ, input=said, capture_output=True)


def new_name() -> str:
    """Return a name that is unique on this machine, whose ports all tests share."""
    return f"w-{uuid.uuid4().hex}"


def test_a_called_command_has_our_streams_and_its_exit_code(start: Start, keys: Path) -> None:
    name = new_name()
    start(name)
    done = call(name, keys, "sh", "-c", "cat; echo bad >&2; exit 7", said=b"x" * 1_000_000)
    assert (done.returncode, done.stderr) == (7, b"bad\n")
    assert done.stdout == b"x" * 1_000_000
    done = call(name, keys, "sh", "-c", "kill -9 $$")
    assert done.returncode == 137
    done = call(name, keys, "no-such-program")
    assert done.returncode == 127
    assert b"no-such-program: No such file" in done.stderr


def test_a_worker_refuses_other_keys(start: Start, keys: Path, tmp_path: Path) -> None:
    name, other = new_name(), shutil.copytree(OTHER_KEYS, tmp_path / "other")
    start(name)
    assert call(name, keys, "true").returncode == 0
    environ = {WORKERS_VARIABLE: f"{name}=127.0.0.1", KEYS_VARIABLE: str(other)}
    words = ["touch", str(tmp_path / "ran")]
    with pytest.raises(WorkerUnusable, match=r"does not answer.*127\.0\.0\.1"):
        asyncio.run(reach_and_run(name, words, environ, timeout_s=0))
    # Who shows a right certificate believes no wrong one, and the other way round.
    for half in ("worker.crt", "launcher"):
        for path in keys.glob(f"{half}*"):
            (other / path.name).write_bytes(path.read_bytes())
        if half == "worker.crt":
            with pytest.raises(WorkerUnusable, match="does not answer"):
                asyncio.run(reach_and_run(name, words, environ, timeout_s=0))
    assert not (tmp_path / "ran").exists()
    assert asyncio.run(reach_and_run(name, words, environ)) == 0
    assert (tmp_path / "ran").exists()


def test_a_caller_that_goes_ends_the_input_of_its_command(start: Start, keys: Path) -> None:
    name = new_name()
    start(name)
    began, ended = keys / "began", keys / "ended"
    environ = {**os.environ, WORKERS_VARIABLE: f"{name}=127.0.0.1", KEYS_VARIABLE: str(keys)}
    script = f"touch {began}; cat; touch {ended}"
    words = [*CALL, name, "sh", "-c", script]
    with subprocess.Popen(words, env=environ, stdin=subprocess.PIPE) as caller:
        wait_for(began)
        caller.kill()
    wait_for(ended)


def test_a_workers_own_program_decides_its_end(start: Start, keys: Path) -> None:
    name = new_name()
    go = keys / "go"
    process = start(name, "sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 5")
    assert call(name, keys, "touch", str(go)).returncode == 0
    assert process.wait(300) == 5
    process = start(new_name(), "no-such-program")
    assert process.wait(300) == 127


def test_a_worker_that_is_told_to_end_lets_called_commands_end_first(
    start: Start, keys: Path
) -> None:
    name = new_name()
    process = start(name)
    began, go = keys / "began", keys / "go"
    environ = {**os.environ, WORKERS_VARIABLE: f"{name}=127.0.0.1", KEYS_VARIABLE: str(keys)}
    script = f"touch {began}; until [ -e {go} ]; do sleep 0.05; done; echo whole"
    words = [*CALL, name, "sh", "-c", script]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE) as caller:
        wait_for(began)
        process.send_signal(signal.SIGTERM)
        go.touch()
        assert caller.communicate(timeout=300)[0] == b"whole\n"
        assert caller.returncode == 0
    assert process.wait(300) == 143


async def test_silent_connections_keep_nobody_out(keys: Path) -> None:
    name, answers = new_name(), None
    while answers is None:
        door, port = WorkerDoor(name), worker_ports(name)[0]
        try:
            answers = door.open(str(keys), [port])
        except OSError:  # somebody has that port
            name = new_name()
    silent = [
        await asyncio.open_connection("127.0.0.1", port) for _ in range(4 * MAX_UNKNOWN_CALLERS)
    ]
    ends = [asyncio.create_task(reader.read()) for reader, _ in silent]
    async with asyncio.timeout(300):
        while sum(end.done() for end in ends) < 3 * MAX_UNKNOWN_CALLERS:
            assert len(door.unknown) <= MAX_UNKNOWN_CALLERS
            await asyncio.sleep(0.02)
    environ = {WORKERS_VARIABLE: f"{name}=127.0.0.1", KEYS_VARIABLE: str(keys)}
    assert await reach_and_run(name, ["true"], environ, timeout_s=300) == 0
    answers.cancel()
    for _, writer in silent:
        writer.transport.abort()
    await asyncio.gather(answers, *ends, return_exceptions=True)


def test_workers_are_named_in_order() -> None:
    assert job_workers({}) == {}
    found = job_workers({WORKERS_VARIABLE: "b=10.0.0.2 a=fd00::1"})
    assert list(found.items()) == [("b", "10.0.0.2"), ("a", "fd00::1")]


def wait_for(path: Path) -> None:
    """Wait until it exists."""
    until = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.02)
