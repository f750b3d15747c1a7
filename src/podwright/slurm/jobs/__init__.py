"""Functions as jobs of Slurm's: by sbatch, squeue and scancel, as their users have them."""

from podwright.slurm.jobs._fake import FakeSlurmJobs
from podwright.slurm.jobs._job_commands import Commands, SlurmJobCommands
from podwright.slurm.jobs._slurm_job import SlurmJob, attach
from podwright.slurm.jobs._submit import submit

__all__ = ["Commands", "FakeSlurmJobs", "SlurmJob", "SlurmJobCommands", "attach", "submit"]
