"""An administrator changes the licences of a job that runs. Slurm then counts as used what is not
what the job holds, and all the same starts whatever finds its devices, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.outer.lab import Release, poll
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.test_recovery import Gate
from tests.outer.slurm.ways import SharedLab, StaticLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


def changed(lab: NativeLab, job: str, licences: str, told: dict[str, int]) -> None:
    """Slurm counts the job otherwise, and is told what follows from that."""
    lab.ok("scontrol", "update", f"jobid={job}", f"licenses={licences}")
    poll("Slurm is told", lambda: told.items() <= lab.state()["told"].items())


def next_one_waits(lab: NativeLab, before: Gate, *ask: str) -> None:
    """It starts once those have ended that hold all there is, and never has to wait for devices
    when it has started."""
    waited = lab.state().get("figures", {}).get("waited")
    after = Gate(lab)
    job = lab.batch(after.script, *ask)
    lab.wait("it waits", lambda jobs: jobs[job].reason == "Licenses")
    before.open()
    lab.wait_state(job, "RUNNING")
    after.open()
    ended = lab.wait_over(job)[job]
    assert (ended.state, ended.fields["Restarts"]) == ("COMPLETED", "0")
    assert lab.state().get("figures", {}).get("waited") == waited


def two_jobs(lab: NativeLab, script: str) -> str:
    jobs = [lab.batch(script, "--ipus=32") for _ in range(2)]
    return str(jobs[0])


def two_rows(lab: NativeLab, script: str) -> str:
    return f"{lab.batch(script, '--ipus=32', '--array=1-2')}_1"


@pytest.mark.parametrize("holders", [two_jobs, two_rows])
@pytest.mark.parametrize(
    ("licences", "hidden"), [("", 32), ("ipu:32,podwright_job:1,ipu_x32:8", 24)]
)
def test_what_slurm_counts_no_more_is_not_free(
    lab: NativeLab, holders: Callable[[NativeLab, str], str], licences: str, hidden: int
) -> None:
    gate = Gate(lab)
    job = holders(lab, gate.script)
    gate.reached(2)
    changed(lab, job, licences, {"ipu_x32": hidden})
    next_one_waits(lab, gate, "--ipus=32")


def test_what_parts_of_a_heterogeneous_job_hold_is_not_free_though_slurm_counts_it_no_more(
    lab: NativeLab,
) -> None:
    gate = Gate(lab)
    job = lab.batch(gate.script, "-n1", "-N1", "--ipus=32", ":", "-n1", "-N1", "--ipus=32")
    gate.reached(1)
    changed(lab, f"{job}+0", "", {"ipu_x32": 64})
    next_one_waits(lab, gate, "--ipus=32")


def test_licences_that_are_too_many_keep_no_heterogeneous_job(lab: NativeLab) -> None:
    gate = Gate(lab)
    job = lab.batch(gate.script, "--ipus=4")
    gate.reached(1)
    sizes = "ipu_x1:16,ipu_x2:16,ipu_x4:16"
    changed(lab, str(job), f"ipu:16,podwright_job:1,{sizes}", {"ipu_x4": 0})
    parts = lab.batch("true", "-n1", "-N1", "--ipus=16", ":", "-n1", "-N1", "--ipus=16")
    assert lab.wait_over(parts)[parts].state == "COMPLETED"
    gate.open()
    assert lab.wait_over(job)[job].state == "COMPLETED"


def test_licences_of_a_running_heterogeneous_job_keep_nobody(lab: NativeLab) -> None:
    gate = Gate(lab)
    job = lab.batch(gate.script, "-n1", "-N1", "--ipus=32", ":", "-n1", "-N1", "--ipus=16")
    gate.reached(1)
    sizes = ",".join(f"ipu_x{1 << k}:16" for k in range(5))
    changed(lab, f"{job}+0", f"ipu:48,podwright_job:2,{sizes}", {"ipu_x16": 32})
    other = lab.batch("true", "--ipus=16")
    assert lab.wait_over(other)[other].state == "COMPLETED"
    gate.open()
    assert lab.wait_over(job)[job].state == "COMPLETED"


@pytest.fixture
def shared(release: Release) -> Iterator[NativeLab]:
    with SharedLab(nodes=2, cpus=16, release=release) as made:
        yield made


@pytest.fixture
def static(release: Release) -> Iterator[NativeLab]:
    with StaticLab(nodes=2, cpus=16, release=release) as made:
        yield made


def test_licences_of_a_shared_partition_that_slurm_counts_no_more_are_not_free(
    shared: NativeLab,
) -> None:
    gate = Gate(shared)
    job = two_jobs(shared, gate.script)
    gate.reached(2)
    changed(shared, job, "", {"ipu_x32": 32})
    next_one_waits(shared, gate, "--ipus=32")


def test_static_partitions_that_slurm_counts_no_more_are_not_free(static: NativeLab) -> None:
    gate = Gate(static)
    jobs = [static.batch(gate.script, "--gres=vipu:4:2") for _ in range(2)]
    gate.reached(2)
    changed(static, str(jobs[0]), "vipu_4:1,podwright_job:1", {"vipu_4": 1})
    changed(static, str(jobs[0]), "", {"vipu_4": 2})
    next_one_waits(static, gate, "--gres=vipu:4:2")
