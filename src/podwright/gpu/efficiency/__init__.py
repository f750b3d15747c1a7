"""Reports how well a job used its GPUs, from Slurm's accounting and from samples."""

from ._fetch_job_report import job_report as job_report
from ._format_job_report import line as line
from ._format_job_report import plot as plot
from ._format_job_report import text as text
from ._format_job_report import tree as tree
from ._job_report import Efficiency as Efficiency
from ._job_report import report as report
from ._sacct_jobs import AccountedJob as AccountedJob
from ._sacct_jobs import asker as asker
from ._sacct_jobs import read_jobs as read_jobs
from ._samples import read_samples as read_samples
