"""What did a job make of its GPUs? Slurm's accounting and samples in, words and tables out."""

from podwright.slurm.gpus.efficiency._accounts import AccountedJob, Ask, one_job, read_jobs, sacct
from podwright.slurm.gpus.efficiency._at_end import (
    Destinations,
    append_as_user,
    as_user,
    keep,
    work,
)
from podwright.slurm.gpus.efficiency._job_report import Advice, Efficiency, report
from podwright.slurm.gpus.efficiency._job_show import advice, facts, gpu_rows, line, plot, tree
from podwright.slurm.gpus.efficiency._month import MonthRow, month
from podwright.slurm.gpus.efficiency._samples import GpuUse, Sampled, read_samples

__all__ = [
    "AccountedJob",
    "Advice",
    "Ask",
    "Destinations",
    "Efficiency",
    "GpuUse",
    "MonthRow",
    "Sampled",
    "advice",
    "append_as_user",
    "as_user",
    "facts",
    "gpu_rows",
    "keep",
    "line",
    "month",
    "one_job",
    "plot",
    "read_jobs",
    "read_samples",
    "report",
    "sacct",
    "tree",
    "work",
]
