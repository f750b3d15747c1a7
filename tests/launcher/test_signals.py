"""A stop that was undone before poprun came to it does not stop poprun for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.launcher.options._move_notice import catches_signal
from tests.launcher.conftest import Launcher, wait_until

_PROGRAM = """
import os, signal
from podwright.launcher.watchers._signals import read_signals, signals, stop

def send(*numbers):
    for number in numbers:
        os.kill(os.getpid(), number)

with signals() as caught:
    wake = caught.collect()
    {before}
    numbers = read_signals(wake)
    print(numbers, flush=True)
    {after}
    if signal.SIGTSTP in numbers:
        stop()
    print("goes on", flush=True)
"""
TSTP = int(signal.SIGTSTP)


def start(before: str, after: str) -> subprocess.Popen[str]:
    """Start the program in a group of its own, whose parent could continue it: only such a
    process can be stopped by SIGTSTP.
    """
    program = _PROGRAM.format(before=before, after=after)
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, process_group=0
    )


@pytest.mark.parametrize(
    ("before", "after", "numbers"),
    [
        ("send(signal.SIGTSTP, signal.SIGCONT)", "pass", []),
        ("send(signal.SIGTSTP)", "send(signal.SIGCONT)", [TSTP]),
        (
            "send(signal.SIGTSTP, signal.SIGCONT, signal.SIGUSR1)",
            "pass",
            [int(signal.SIGUSR1)],
        ),
    ],
    ids=["before it is read", "before the process stops", "with another signal"],
)
def test_a_stop_that_was_undone_does_not_stop(before: str, after: str, numbers: list[int]) -> None:
    process = start(before, after)
    out, _ = process.communicate(timeout=60)  # one that stands still never ends
    assert out == f"{numbers}\ngoes on\n"


@pytest.mark.parametrize("before", ["send(signal.SIGTSTP)", "send(CONT, signal.SIGTSTP)"])
def test_a_stop_that_was_not_undone_stops_until_somebody_continues(before: str) -> None:
    process = start(before.replace("CONT", "signal.SIGCONT"), "pass")
    assert process.stdout
    assert process.stdout.readline() == f"[{TSTP}]\n"
    wait_until(lambda: _state(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=60)
    assert out == "goes on\n"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_mpirun_leaves_stopping_and_continuing_to_poprun(launcher: Launcher) -> None:
    """`scontrol suspend` sends SIGTSTP to every process of a job. Open MPI's mpirun would pass it
    on to the instances, and when it is slow only after the SIGCONT of `scontrol resume`.
    """
    program = "i=0; while :; do i=$((i + 1)); echo $i >>count; sleep 0.05; done"
    process = launcher.start("--num-replicas=1", "sh", "-c", program)
    count = launcher.cwd / "count"
    wait_until(lambda: count.exists() and count.stat().st_size > 0)
    mpirun = launcher.tree(process).mpirun
    assert not catches_signal(mpirun, signal.SIGTSTP)
    assert not catches_signal(mpirun, signal.SIGCONT)
    assert catches_signal(mpirun, signal.SIGUSR1), "it would end mpirun"
    os.kill(mpirun, signal.SIGTSTP)
    lines = len(count.read_text().splitlines())
    wait_until(lambda: len(count.read_text().splitlines()) > lines + 20)
    process.terminate()
    process.communicate(timeout=300)
    launcher.leaves_nothing()
