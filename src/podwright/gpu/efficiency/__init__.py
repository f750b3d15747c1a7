"""Reports how well a job used its GPUs, from Slurm's accounting and from samples."""

from podwright.gpu.efficiency._fetch_job_report import job_report
from podwright.gpu.efficiency._format_job_report import line, plot, text, tree
from podwright.gpu.efficiency._job_report import Efficiency, report
from podwright.gpu.efficiency._sacct_jobs import AccountedJob, asker, read_jobs
from podwright.gpu.efficiency._samples import read_samples

__all__ = [
    "AccountedJob",
    "Efficiency",
    "asker",
    "job_report",
    "line",
    "plot",
    "read_jobs",
    "read_samples",
    "report",
    "text",
    "tree",
]
