"""Functions as jobs of Slurm's: by sbatch, squeue and scancel, as their users have them."""

from podwright.slurm.jobs._commands import Commands, SlurmCommands
from podwright.slurm.jobs._fake import FakeSlurm
from podwright.slurm.jobs._job import Job, attach
from podwright.slurm.jobs._submit import submit

__all__ = ["Commands", "FakeSlurm", "Job", "SlurmCommands", "attach", "submit"]
