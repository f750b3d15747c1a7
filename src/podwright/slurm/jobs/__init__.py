"""Runs functions as Slurm jobs, with the commands that users have: sbatch, squeue and scancel."""

from podwright.slurm.jobs._fake import FakeSlurmJobs
from podwright.slurm.jobs._job_commands import Commands, SlurmJobCommands
from podwright.slurm.jobs._slurm_job import SlurmJob, attach
from podwright.slurm.jobs._submit import submit

__all__ = ["Commands", "FakeSlurmJobs", "SlurmJob", "SlurmJobCommands", "attach", "submit"]
