"""Why a job waits, or what it holds: Slurm's own words and the server's, in one answer."""

from podwright.slurm.pods.waiting._explain_job import explain_job
from podwright.slurm.pods.waiting._show_job import ShownJob, find

__all__ = ["ShownJob", "explain_job", "find"]
