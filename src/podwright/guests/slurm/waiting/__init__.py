"""Explains why a job waits, or what it holds. The answer joins what Slurm says and what the server
says.
"""

from podwright.guests.slurm.waiting._explain_job import explain_job
from podwright.guests.slurm.waiting._read_slurm_job import find

__all__ = ["explain_job", "find"]
