"""What a real slurmd 24.11 with Debian's gpu/nvml plugin accounted of a job's GPUs.

Recorded by `tests/outer/gpu/test_accounted.py`: two tasks for 9 s, one at 80 per cent of GPU 0 with
1,080 MiB, the other at 30 of GPU 1 with 1,030 MiB.
"""

from __future__ import annotations

from podwright.gpu.efficiency import facts, line, read_jobs, report
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
    f"1|sbatch|root|main|COMPLETED|{_TIMES}|525600|billing=2,{_HAD}|1|n1|00:00.042||||||/home|1",
    f"1.batch|batch|||COMPLETED|{_TIMES}||{_HAD}|1|n1|00:00.017|11108K|{_BATCH}|{_BATCH}|1|||1",
    f"1.0|sh|||COMPLETED|{_TIMES}||{_HAD}|1|n1|00:00.025|3736K|{_TOTAL}|{_MOST}|2|||1",
)


def test_the_highest_use_of_any_task_is_what_slurm_knows() -> None:
    text = "\n".join(row.replace("|", CUT) for row in RECORDED)
    assert all(row.count("|") == len(_ACCOUNT_COLUMNS) - 1 for row in RECORDED)
    (job,) = read_jobs(text)
    assert (job.gpus, job.gpu_peak, job.gpu_memory, job.used_memory) == (
        2,
        80,
        1080 << 20,
        11108 << 10,
    )
    found = report(job, None)
    assert found.source == "accounting"
    assert line(found).startswith("GPUs at most 80 % busy")
    assert ("GPUs", "2, at most 80 % busy (Slurm's accounting)") in facts(found)


def test_gpus_that_no_task_used() -> None:
    text = "\n".join(row.replace("|", CUT) for row in RECORDED[:2])
    (job,) = read_jobs(text)
    assert job.gpu_peak == 0
    assert [advice.ask for advice in report(job, None).advice if "GPU" in advice.text] == [
        "no --gpus"
    ]
