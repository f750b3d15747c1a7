"""Reports how well jobs used their GPUs, from Slurm's accounting and from samples."""

from podwright.gpu.efficiency._fetch_job_report import job_report, summarise_ended
from podwright.gpu.efficiency._format_job_report import (
    advice,
    facts,
    gpu_rows,
    line,
    plot,
    text,
    tree,
)
from podwright.gpu.efficiency._job_report import Advice, Efficiency, job_of_samples, report
from podwright.gpu.efficiency._job_summaries import (
    Destinations,
    append_as_user,
    as_user,
    keep,
    work,
)
from podwright.gpu.efficiency._sacct_jobs import AccountedJob, Ask, asker, one_job, read_jobs, sacct
from podwright.gpu.efficiency._samples import GpuUse, Sampled, read_samples
from podwright.gpu.efficiency._usage_table import MonthRow, month, month_text

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
    "asker",
    "facts",
    "gpu_rows",
    "job_of_samples",
    "job_report",
    "keep",
    "line",
    "month",
    "month_text",
    "one_job",
    "plot",
    "read_jobs",
    "read_samples",
    "report",
    "sacct",
    "summarise_ended",
    "text",
    "tree",
    "work",
]
