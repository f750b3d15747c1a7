"""What lint says of programs in a job, shown in real Slurm: ranks, servers, NCCL variables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.gpu.fabriclog import judge, read_log
from podwright.gpu.lint import lint, read_script
from tests.outer.gpu.truth import gpu_lab
from tests.outer.lab import SlurmLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

MPIRUN = Path(sys.executable).parent / "mpirun"
LOGS = Path(__file__).parents[2] / "gpu/requests/nccl"

# What NCCL writes when it obeys a variable, and what check-fabric finds then. The logs are in
# NCCL's formats: no machine here has the fabric.
OBEYED = {
    "NCCL_IB_DISABLE=1": ("nccl-over-tcp", "2.10-socket-disabled.log", "tcp"),
    "NCCL_P2P_DISABLE=1": ("nccl-hampered", "2.18-shm.log", "near-memory"),
    "NCCL_NET_GDR_LEVEL=LOC": ("nccl-hampered", "2.22-gdr-level.log", "no-gpudirect"),
}


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    with gpu_lab() as lab:
        yield lab


def submit(lab: SlurmLab, *lines: str) -> int:
    return lab.submit("\n".join(("#!/bin/bash", *lines)) + "\n")


def output(lab: SlurmLab, *lines: str) -> str:
    job = submit(lab, *lines)
    lab.wait_over(job)
    return (lab.folder / "out" / f"slurm-{job}.out").read_text()


def rules(*lines: str) -> list[str]:
    """The rules that speak, but those that want nodes alone."""
    text = "\n".join(("#!/bin/bash", *lines)) + "\n"
    return [f.rule for f in lint(read_script(text), better=True) if f.rule != "missing-exclusive"]


def tried(command: str) -> tuple[str, ...]:
    """Three times, if need be: Open MPI 5's mpirun seldom hangs before it starts anything
    (open-mpi/ompi issue 10586), which is neither lint's nor Slurm's."""
    once = f"timeout --kill-after=5 60 {command} >said 2>&1"
    return (f"for n in 1 2 3; do {once}; [ $? -ge 124 ] || break; done", "cat said")


def test_mpirun_refuses_more_ranks_than_tasks(lab: SlurmLab) -> None:
    job = ("#SBATCH --nodes=1", "#SBATCH --ntasks=2", "#SBATCH --gpus-per-node=2")
    root = ("export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",)
    few, many = (f"{MPIRUN} -np {ranks} echo rank" for ranks in (2, 4))
    assert output(lab, *job, *root, *tried(few)).split() == ["rank", "rank"]
    assert "not enough slots available" in output(lab, *job, *root, *tried(many))
    assert rules(*job, few) == []
    assert rules(*job, many) == ["more-ranks-than-tasks"]


@pytest.mark.timeout(120)
def test_a_server_in_a_batch_job_ends_with_its_time_and_moves(lab: SlurmLab) -> None:
    server = ("#SBATCH --exclusive", "#SBATCH --gpus=1", "hostname", "sleep 600")
    first, second = submit(lab, *server), submit(lab, *server)
    # the same script serves from another host, as its own stands elsewhere
    hosts = [lab.wait_state(job, "RUNNING").fields["NodeList"] for job in (first, second)]
    assert len(set(hosts)) == 2
    # at the end of its time Slurm stops it, and starts no other
    lab.ok("scontrol", "update", f"JobId={first}", "EndTime=now+1seconds")
    lab.wait_over(first, seconds=90)
    assert lab.job(first).state == "TIMEOUT"
    assert lab.job(first).fields["Restarts"] == "0"
    lab.ok("scancel", str(second))
    serve = ("#SBATCH --exclusive", "#SBATCH --gpus=1", "vllm serve a-model --port 8000")
    assert rules(*serve) == ["online-serving"]


@pytest.mark.parametrize("setting", OBEYED)
def test_a_variable_of_the_script_reaches_every_task(lab: SlurmLab, setting: str) -> None:
    """And what NCCL makes of it, its log says."""
    rule, log, finding = OBEYED[setting]
    name, _, value = setting.partition("=")
    job = ("#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=2", "#SBATCH --gpus-per-node=2")
    assert output(lab, *job, f"export {setting}", f"srun printenv {name}").split() == [value] * 4
    assert rule in rules(*job, f"export {setting}", "srun python train.py")
    text = (LOGS / log).read_text()
    assert f"{name} set by environment to {value}" in text
    assert finding in [f.id for f in judge(read_log(text.splitlines()))]
