"""`podwright.slurm.submit` on a real Slurm: devices, results, exceptions, ends, another program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

_WORK = """
import os, sys, time, podwright
from podwright.errors import LaunchFailed

def work(sign):
    return int(os.environ["SLURM_PROCID"]), os.environ["IPUOF_VIPU_API_PARTITION_ID"], sign

def bad():
    raise LookupError("nothing there")

folder, sys.executable = sys.argv[1:3]
"""
_SUBMITS = """
job = podwright.slurm.submit(work, "+", ipus=16, tasks=4, folder=folder)
results = job.results(600)
assert results == [(k, f"slurm_{job.id}", "+") for k in range(4)], results
assert job.state == "COMPLETED", job.state
failed = podwright.slurm.submit(bad, folder=folder, ipus=0)
try:
    failed.results(600)
except LookupError as error:
    assert "in bad" in str(error.__cause__)
print(job.id, failed.state)
"""
_ATTACHES = """
job = podwright.slurm.attach(sys.argv[3], folder=folder)
assert job.result(2)[0] == 2
slow = podwright.slurm.submit(time.sleep, 1000, folder=folder, ipus=0)
while slow.state != "RUNNING":
    time.sleep(0.2)
slow.cancel()
try:
    slow.results(600)
except LaunchFailed as error:
    print(error.data["state"])
"""


#: The labs of newer releases have no Python: their jobs leave for this machine's.
_THERE = """#!/bin/sh
exec nsenter -t {pid} -m -r --wd="$PWD" -- {python} "$@"
"""


def program(lab: NativeLab, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program beside the lab's Slurm; its jobs' Python."""
    python = sys.executable
    if lab.release.root:
        python = str(lab.write("bin/python", _THERE.format(pid=os.getpid(), python=python)))
    folder = str(lab.folder / "out" / "jobs")
    return lab.beside("-c", _WORK + text, folder, python, *words)


def test_a_function_is_a_job(lab: NativeLab) -> None:
    done = program(lab, _SUBMITS)
    assert done.returncode == 0, done.stderr + done.stdout
    number, state = done.stdout.split()
    assert state == "FAILED"
    again = program(lab, _ATTACHES, number)
    assert (again.stdout, again.returncode) == ("CANCELLED\n", 0), again.stderr
