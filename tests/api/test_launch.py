"""Functions and programs on a partition, from Python: results, exceptions, endings."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import podwright
from podwright.errors import (
    Denied,
    InstanceFailed,
    InvalidRequest,
    LaunchFailed,
    NotFound,
    NotPicklable,
    PythonMismatch,
    TimedOut,
)
from podwright.functions import dump_call, read_outcome
from podwright.functions._call import load_call
from tests.whole.conftest import Pod as Server


class Picky(Exception):
    """Can be pickled, and not made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Locked(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("locked")
        self.lock = threading.Lock()


def index() -> int:
    return int(os.environ["RANK"])


def _until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _launch(function: Callable[..., Any], *args: Any, **options: Any) -> podwright.Job[Any]:
    return podwright.launch(function, *args, launcher="local", **options)


def test_each_instance_returns_its_own_result(server: Server) -> None:
    """In order; with arguments of every kind; over MPI, as poprun would."""
    add = 10

    def function(first: int, *, second: int) -> tuple[int, int]:
        import popdist

        popdist.init()
        return popdist.getInstanceIndex(), first + second + add

    job = podwright.launch(function, 1, kwargs={"second": 2}, replicas=8, instances=4)
    assert job.results(300) == [(k, 13) for k in range(4)]
    assert (job.state, job.exit_code, job.progress(), job.result(2)) == (
        *("COMPLETED", 0, (4, 4)),
        (2, 13),
    )
    assert "SIMULATED" in job.logs()


def test_a_launch_fills_the_partition_that_it_is_given(server: Server) -> None:
    with podwright.partition(4, gcds=2) as partition:
        names = _launch(lambda: os.environ["IPUOF_VIPU_API_PARTITION_ID"], partition=partition)
        assert names.results(300) == [partition.name] * 2
        ran = podwright.run(["sh", "-c", "echo $RANK"], partition=partition, capture=True)
        assert sorted(ran.stdout.split()) == sorted(["[1,0]<stdout>:", "0", "[1,1]<stdout>:", "1"])


def test_functions_of_a_program_and_its_classes_come_home(server: Server, tmp_path: Path) -> None:
    """What is in `__main__`, and in a module beside it, which the instances' folder is not."""
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "program.py").write_text(
        "import os, podwright, beside\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "def work(x): return Point(beside.double(x))\n"
        "if __name__ == '__main__':\n"
        "    os.chdir('/')\n"
        "    (found,) = podwright.launch(work, 21, launcher='local').results()\n"
        "    print(type(found) is Point, found.x)\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("True 42\n", 0), done.stderr


def test_an_exception_comes_home_with_its_traceback(server: Server) -> None:
    def deep() -> None:
        raise KeyError("of the instance")

    job = _launch(lambda: deep() if index() == 1 else time.sleep(1000), replicas=2, instances=2)
    with pytest.raises(KeyError) as raised:
        job.results(300)
    assert raised.value.args == ("of the instance",)
    assert raised.value.__notes__[0].startswith("in instance 1 on ")
    assert "in deep\n" in str(raised.value.__cause__)
    assert isinstance(job.exception(), KeyError)
    assert (job.state, job.exit_code) == ("FAILED", 1)
    assert "KeyError: 'of the instance'" in job.logs(1)
    assert "KeyError" not in job.logs(0)


@pytest.mark.parametrize("kind", ["Picky", "Locked", "Exit"])
def test_an_exception_that_cannot_travel_is_told_in_words(server: Server, kind: str) -> None:
    def function() -> None:
        if kind == "Picky":
            raise Picky(1, 2)
        if kind == "Locked":
            raise Locked
        sys.exit(3)

    with pytest.raises(InstanceFailed) as raised:
        _launch(function).results(300)
    data = raised.value.data
    assert data["type"].rpartition(".")[2] == {"Exit": "SystemExit"}.get(kind, kind)
    assert (data["instance"], bool(data["host"])) == (0, True)
    assert "in function\n" in data["traceback"]


def test_a_result_that_cannot_travel_is_an_exception(server: Server) -> None:
    with pytest.raises(TypeError, match="pickle"):
        _launch(threading.Lock).results(300)


def test_an_instance_that_is_killed_has_no_result(server: Server) -> None:
    with pytest.raises(LaunchFailed) as raised:
        _launch(lambda: os.kill(os.getpid(), signal.SIGKILL)).results(300)
    assert raised.value.data["exit_code"] == 128 + signal.SIGKILL
    assert raised.value.problem == "instance 0 was ended by signal 9 (SIGKILL)"
    assert raised.value.data["instance"] == 0


@pytest.mark.parametrize(
    ("instances", "size"), [(2, 16 << 20), pytest.param(1, 1 << 30, marks=pytest.mark.soak)]
)
def test_large_results_come_home_whole(server: Server, instances: int, size: int) -> None:
    job = _launch(lambda: bytes([index()]) * size, replicas=instances, instances=instances)
    for k, result in enumerate(job.results(3000)):
        assert len(result) == size
        assert result.count(k) == size


def test_a_function_that_cannot_be_sent_is_refused_before_the_launch(server: Server) -> None:
    lock = threading.Lock()
    with pytest.raises(NotPicklable, match="lock"):
        podwright.launch(lambda: lock)
    with pytest.raises(NotPicklable, match="is not a function"):
        podwright.launch(7)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="max_restarts"):
        podwright.launch(index, max_restart=1)


def test_a_host_with_another_python_refuses_with_both(tmp_path: Path) -> None:
    """It refuses before anything is unpickled, because it could not even read what follows."""
    head, _, _ = dump_call(index, (), {}).partition(b"\n")
    version = f"CPython 3.{sys.version_info[1]}.{sys.version_info[2]}"
    assert version.encode() in head
    payload = tmp_path / "call"
    payload.write_bytes(head.replace(version.encode(), b"CPython 3.99.1") + b"\nno pickle")
    result = tmp_path / "result.0"
    environ = {**os.environ, "PODWRIGHT_PAYLOAD": str(payload), "PODWRIGHT_RESULT": str(result)}
    done = subprocess.run([sys.executable, "-m", "podwright.functions"], env=environ, check=False)
    assert done.returncode == 1
    outcome = read_outcome(str(result), 0)
    assert outcome
    assert isinstance(outcome.error, PythonMismatch)
    assert (outcome.error.data["here"], outcome.error.data["there"]) == ("CPython 3.99.1", version)


def test_nothing_is_unpickled_that_others_could_have_written(tmp_path: Path) -> None:
    """In each of these the pickle would end this process."""
    bad = dump_call(os._exit, (3,), {})
    path = tmp_path / "result.0"
    path.write_bytes(b'{"size": %d}\n' % len(bad) + bad)
    for mode in (0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(Denied, match="may be written by others"):
            read_outcome(str(path), 0)
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(Denied, match=str(tmp_path)):
        read_outcome(str(path), 0)
    tmp_path.chmod(0o700)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(Denied):
        read_outcome(str(tmp_path / "link"), 0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Denied, match="is not an ordinary file"):
        read_outcome(str(tmp_path / "pipe"), 0)
    if os.getuid() == 0:
        os.chown(path, 5, 5)
        with pytest.raises(Denied, match="belongs to the user with number 5"):
            read_outcome(str(path), 0)
    assert read_outcome(str(tmp_path / "nothing"), 0) is None


def test_half_an_outcome_counts_as_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "result.0"
    for text in (b"", b'{"size": 1', b'{"size": 9}\n123'):
        path.write_bytes(text)
        assert read_outcome(str(path), 0) is None


def test_a_call_says_for_whom_it_is() -> None:
    import io

    call = load_call(io.BytesIO(dump_call(pow, (2, 5), {})), "here")
    assert call.function(*call.args, **call.kwargs) == 32


def test_a_job_is_cancelled_and_what_it_had_is_free(server: Server) -> None:
    job = _launch(time.sleep, 1000, replicas=2, instances=2)
    _until(lambda: bool(server.partitions()))
    assert (job.state, job.wait(0), job.exit_code) == ("RUNNING", False, None)
    with pytest.raises(TimeoutError):
        job.results(0)
    job.cancel()
    assert (job.state, server.partitions()) == ("CANCELLED", {})
    with pytest.raises(LaunchFailed, match="cancelled"):
        job.results()
    job.cancel()  # again is not an error


def test_a_job_that_nobody_holds_goes_on_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"

    def work() -> None:
        mark.touch()
        while not go.exists():
            time.sleep(0.05)

    job = _launch(work)
    gone = weakref.ref(job)
    folder = job._folder
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    del job
    _until(mark.exists)
    found = gone()
    assert found
    go.touch()
    found.wait()
    del found
    _until(lambda: gone() is None)
    assert not os.path.exists(folder)


def test_closing_a_partition_ends_what_runs_in_it(server: Server) -> None:
    with podwright.connect() as pod:
        with pod.partition(2) as partition:
            job = _launch(time.sleep, 1000, partition=partition)
        assert (job.state, pod.partitions()) == ("CANCELLED", [])
        with pytest.raises(podwright.errors.Fenced):
            _launch(time.sleep, 1000, partition=partition)


def test_a_killed_program_leaves_no_instance(server: Server, tmp_path: Path) -> None:
    program = (
        "import os, podwright, sys, time\n"
        "partition = podwright.connect().partition(2)\n"
        "job = podwright.launch(lambda mark: (open(mark, 'w').close(), time.sleep(1000)),\n"
        "                       sys.argv[1], partition=partition, launcher='local')\n"
        "job.wait()\n"
    )
    mark = tmp_path / "mark"
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", program, mark])
    _until(mark.exists)
    process.kill()
    process.wait()
    _until(lambda: server.partitions() == {})


def test_run_tells_how_it_ended(server: Server) -> None:
    ran = podwright.run(["sh", "-c", "exit 3"], check=False, capture=True, launcher="local")
    assert ran.exit_code == 3
    assert "ended with exit code 3" in ran.stderr
    with pytest.raises(LaunchFailed) as raised:
        podwright.run(["sh", "-c", "exit 3"], capture=True, launcher="local")
    assert raised.value.data["exit_code"] == 3
    assert raised.value.message == "instance 0 ended with exit code 3."
    with pytest.raises(NotFound, match="no-such-program"):
        podwright.run(["no-such-program"], capture=True, launcher="local")


def test_a_launch_that_takes_too_long_times_out(server: Server) -> None:
    """Where an instance itself ends with timeout(1)'s code, it has failed."""
    with pytest.raises(TimedOut) as raised:
        podwright.run(["sleep", "600"], capture=True, launcher="local", timeout=0.5)
    assert raised.value.data["exit_code"] == 124
    with pytest.raises(TimedOut, match=r"--timeout: the limit of 0\.5 s is over"):
        _launch(lambda: time.sleep(600), timeout=0.5).results(300)
    with pytest.raises(LaunchFailed, match="instance 0 ended with exit code 124"):
        podwright.run(["sh", "-c", "exit 124"], capture=True, launcher="local")


def test_ctrl_c_ends_the_instances_in_order(server: Server, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    work = f"trap 'echo asked >>{mark}; exit 0' TERM; echo up >>{mark}; sleep 1000 & wait"
    program = (
        "import podwright, sys\n"
        "try: podwright.run(['sh', '-c', sys.argv[1]], launcher='local')\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, work], stdout=subprocess.PIPE, text=True
    )
    _until(mark.exists)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert (out, mark.read_text()) == ("interrupted\n", "up\nasked\n")
    assert server.partitions() == {}


async def test_a_job_can_be_awaited_and_cancelled(server: Server, tmp_path: Path) -> None:
    assert await _launch(index, replicas=2, instances=2) == [0, 1]
    ran = await podwright.run_async(["sh", "-c", "echo here"], capture=True, launcher="local")
    assert "here" in ran.stdout
    mark = tmp_path / "mark"
    words = ["sh", "-c", f"touch {mark}; sleep 1000"]
    task = asyncio.create_task(podwright.run_async(words, launcher="local"))
    await asyncio.to_thread(_until, mark.exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.partitions() == {}
