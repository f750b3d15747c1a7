"""Every ending of poprun against the real server: its partition goes, its lease is free again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from podwright.hosts import descendants
from tests.whole.conftest import BIN, Pod

LINE = ["--num-replicas=4", "--num-instances=2"]


def started(pod: Pod, *words: str) -> subprocess.Popen[str]:
    """A poprun whose two instances are up."""
    process = subprocess.Popen(
        [str(BIN / "poprun"), *LINE, *words, "sh", "-c", "echo up; exec sleep 120"],
        env=pod.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    for _ in range(2):
        assert process.stdout.readline().endswith("up\n"), process.communicate()
    return process


def gone(pod: Pod, within: float = 300) -> None:
    """Fails unless the server soon has no partition and no lease."""
    deadline = time.monotonic() + within
    while left := pod.partitions():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_partition_is_there_for_the_run_and_only_so_long(shared16: Pod) -> None:
    ran = shared16.run(
        "poprun", *LINE, "sh", "-c", 'vipu get partition "$IPUOF_VIPU_API_PARTITION_ID"'
    )
    assert ran.code == 0, ran
    assert shared16.partitions() == {}
    ran = shared16.run("poprun", *LINE, "--vipu-partition=mine", "--remove-partition=no", "true")
    assert ran.code == 0, ran
    assert list(shared16.partitions()) == ["mine"]
    assert not shared16.partitions()["mine"].get("leases")


@pytest.mark.parametrize("who", ["poprun", "keeper", "guardian", "mpirun"])
def test_whoever_of_a_launch_is_killed_nothing_is_left(shared16: Pod, who: str) -> None:
    process = started(shared16)
    keeper, guardian, mpirun = (p.pid for p in descendants(process.pid)[:3])
    assert len(shared16.partitions()) == 1
    victims = {
        "poprun": process.pid,
        "keeper": keeper,
        "guardian": guardian,
        "mpirun": mpirun,
    }
    os.kill(victims[who], signal.SIGKILL)
    process.communicate(timeout=300)
    gone(shared16)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_release_at_once(shared16: Pod, number: signal.Signals) -> None:
    process = started(shared16)
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert shared16.partitions() == {}


def test_a_server_that_is_killed_and_comes_back_disturbs_no_run(pod16: Pod) -> None:
    process = started(pod16)
    name = next(iter(pod16.partitions()))
    pod16.stop(signal.SIGKILL)
    time.sleep(4)  # a renewal falls due meanwhile
    pod16.start()
    assert process.poll() is None
    assert list(pod16.partitions()) == [name]
    time.sleep(4)
    assert process.poll() is None, process.communicate()
    process.terminate()
    process.communicate(timeout=300)
    assert pod16.partitions() == {}


def test_a_partition_in_use_is_refused_to_a_second_run(shared16: Pod) -> None:
    first = started(shared16, "--vipu-partition=p1", "--remove-partition=no")
    second = shared16.run("poprun", *LINE, "--vipu-partition=p1", "true")
    assert second.code == 75, second
    assert second.err.count("POPRUN ERROR: ") == 1
    assert first.poll() is None
    first.terminate()
    first.communicate(timeout=300)
    assert shared16.run("poprun", *LINE, "--vipu-partition=p1", "true").code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--vipu-partition=small"], 1, "small"),
        (["--num-replicas=32", "--vipu-partition=new"], 2, "32"),
        (["--vipu-allocation=nowhere", "--vipu-partition=new"], 1, "nowhere"),
        (["--num-instances=3"], 2, "do not divide evenly"),
        (["--num-ilds=2", "--vipu-partition=new"], 2, "2"),
    ],
)
def test_bad_wishes_change_nothing(shared16: Pod, words: list[str], code: int, said: str) -> None:
    shared16.good("vipu", "create", "partition", "small", "--size", "2")
    before = shared16.partitions()
    ran = shared16.run("poprun", *LINE, *words, "true")
    errors = [line for line in ran.err.splitlines() if line.startswith("POPRUN ERROR: ")]
    assert len(errors) == 1, ran
    assert said in errors[0]
    assert ran.code == code, ran
    assert shared16.partitions() == before


def test_poprun_says_that_its_server_is_not_there(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    ran = pod.run("poprun", *LINE, "true")
    assert ran.code == 69, ran
    ran = pod.run("poprun", *LINE, "--vipu-server-host=localhost", "--vipu-server-port=1", "true")
    assert ran.code == 69, ran
    assert "POPRUN ERROR: " in ran.err


def test_all_watchers_that_are_killed_on_the_servers_host_hold_nothing_for_long(
    shared16: Pod,
) -> None:
    """Nobody is left to give the lease back; the server sees that nothing of the launch is."""
    process = started(
        shared16, "--fence-after=3600", "--vipu-partition=p1", "--remove-partition=no"
    )
    holder = f"poprun sh (process {process.pid} on {os.uname().nodename})"
    assert holder in shared16.run("poprun", *LINE, "--vipu-partition=p1", "true").err
    below = [p.pid for p in descendants(process.pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (process.pid, *below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    process.communicate(timeout=300)
    deadline = time.monotonic() + 300
    while (ran := shared16.run("poprun", *LINE, "--vipu-partition=p1", "true")).code == 75:
        assert time.monotonic() < deadline, ran
    assert ran.code == 0, ran
