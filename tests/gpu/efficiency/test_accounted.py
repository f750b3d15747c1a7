"""What a real slurmd 24.11 with Debian's gpu/nvml plugin accounted of a job's GPUs.

Recorded by `tests/outer/gpu/test_accounted.py`: two tasks for 9 s, one at 80 per cent of GPU 0 with
1,080 MiB, the other at 30 of GPU 1 with 1,030 MiB.
"""

from __future__ import annotations

import pytest

from podwright.gpu.efficiency import AccountedJob, line, read_jobs, report, text, tree
from podwright.gpu.efficiency._sacct_jobs import _ACCOUNT_COLUMNS
from podwright.slurm.reader import CUT

_BATCH = (
    "cpu=00:00:00,energy=0,fs/disk=28791,gres/gpumem=0,gres/gpuutil=0,mem=11108K,pages=1,"
    "vmem=219616K"
)
_TOTAL = (
    "cpu=00:00:00,energy=0,fs/disk=48442,gres/gpumem=2110M,gres/gpuutil=110,mem=7308K,pages=0,"
    "vmem=11400K"
)
_MOST = (
    "cpu=00:00:00,energy=0,fs/disk=32305,gres/gpumem=1080M,gres/gpuutil=80,mem=3736K,pages=0,"
    "vmem=5700K"
)
_HAD = "cpu=2,gres/gpu=2,mem=0,node=1"
_TIMES = "1795352072|1795352072|1795352081|9"
RECORDED = (
    f"1|sbatch|root|main|COMPLETED|{_TIMES}|525600|billing=2,{_HAD}|1|n1|00:00.042|||||/home|1",
    f"1.batch|batch|||COMPLETED|{_TIMES}||{_HAD}|1|n1|00:00.017|11108K|{_BATCH}|{_BATCH}|1||1",
    f"1.0|sh|||COMPLETED|{_TIMES}||{_HAD}|1|n1|00:00.025|3736K|{_TOTAL}|{_MOST}|2||1",
)


def test_the_highest_use_of_any_task_is_what_slurm_knows() -> None:
    output = "\n".join(row.replace("|", CUT) for row in RECORDED)
    assert all(row.count("|") == len(_ACCOUNT_COLUMNS) - 1 for row in RECORDED)
    (job,) = read_jobs(output)
    assert (job.gpus, job.gpu_peak, job.gpu_memory, job.used_memory) == (
        2,
        80,
        1080 << 20,
        11108 << 10,
    )
    found = report(job, None)
    assert found.source == "accounting"
    together = "at most 80 % busy in one task, all of its GPUs together"
    assert line(found).startswith(f"GPUs {together}")
    assert f"2, {together} (Slurm's accounting)" in text(found)


def job_of(*, gpus: int, batch: str) -> AccountedJob:
    """A job of one task, with these figures of its batch step in both columns."""
    tres = f"cpu=26:40:00,fs/disk=5273,{batch},mem=60G,pages=3465,vmem=70G"
    rows = (
        f"4711|t|u|gpu|COMPLETED|{_TIMES}|150|cpu=16,gres/gpu={gpus},mem=128G,node=1|1|n1|||||||4711",
        f"4711.batch|batch|||COMPLETED|{_TIMES}|||1|n1|26:40:00|60G|{tres}|{tres}|1||4711",
        f"4711.extern|extern|||COMPLETED|{_TIMES}|||1||00:00:00||gres/gpumem=0,gres/gpuutil=0|"
        "gres/gpumem=0,gres/gpuutil=0|1||4711",
    )
    (job,) = read_jobs("\n".join(row.replace("|", CUT) for row in rows))
    return job


def test_slurms_figure_of_a_task_is_the_sum_over_its_gpus() -> None:
    found = report(job_of(gpus=4, batch="gres/gpumem=160G,gres/gpuutil=396"), None)
    assert "396 % busy in one task, all of its GPUs together" in text(found)
    assert "1, at most 96 % busy (Slurm's" in text(
        report(job_of(gpus=1, batch="gres/gpumem=16G,gres/gpuutil=96"), None)
    )


@pytest.mark.parametrize(
    "batch",
    [
        "gres/gpumem=0,gres/gpuutil=0",
        "gres/gpumem=18446744073709551614,gres/gpuutil=18446744073709551614",  # NO_VAL64
        "gres/gpumem=18446744073709551615,gres/gpuutil=18446744073709551615",  # INFINITE64
        "gres/gpumem=16E,gres/gpuutil=16777216T",  # as sacct writes them in units
        "pages=0",
    ],
)
def test_what_slurm_could_not_measure_is_not_known(batch: str) -> None:
    job = job_of(gpus=1, batch=batch)
    assert (job.gpu_peak, job.gpu_memory) == (None, None)
    found = report(job, None)
    assert (found.source, found.gpu_load, found.gpus_used) == ("nothing", None, None)
    assert "GPU" not in " ".join(advice.text for advice in found.advice)
    assert "their use is not known" in text(found)
    assert "GPU" not in line(found)
    assert tree(found)["job"]["gpu_peak"] is None


def test_memory_without_a_number_is_not_known() -> None:
    tres = "cpu=00:01:00,mem=18446744073709551614"
    rows = (
        f"7|t|u|gpu|COMPLETED|{_TIMES}|150|cpu=16,mem=128G,node=1|1|n1|||||||7",
        f"7.batch|batch|||COMPLETED|{_TIMES}|||1|n1|00:01:00||{tres}|{tres}|1||7",
    )
    (job,) = read_jobs("\n".join(row.replace("|", CUT) for row in rows))
    assert job.used_memory is None
    assert job.cpu_seconds == 60
