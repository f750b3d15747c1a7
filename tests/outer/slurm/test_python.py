"""`podwright.slurm.submit` on a real Slurm: devices, results, exceptions, ends, another program."""

from __future__ import annotations

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

folder = sys.argv[1]
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
job = podwright.slurm.attach(sys.argv[2], folder=folder)
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


# The labs of newer releases have no Python for jobs.
@pytest.mark.parametrize("shared_lab", ["oldest"], indirect=True, scope="session")
def test_a_function_is_a_job(lab: NativeLab) -> None:
    folder = lab.folder / "out" / "jobs"
    done = lab.run(sys.executable, "-c", _WORK + _SUBMITS, str(folder))
    assert done.returncode == 0, done.stderr + done.stdout
    number, state = done.stdout.split()
    assert state == "FAILED"
    again = lab.run(sys.executable, "-c", _WORK + _ATTACHES, str(folder), number)
    assert (again.stdout, again.returncode) == ("CANCELLED\n", 0), again.stderr
