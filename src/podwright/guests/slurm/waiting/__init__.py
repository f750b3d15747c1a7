"""Explains why a job waits, or what it holds. The answer joins what Slurm says and what the server
says.
"""

from ._explain_job import explain_job as explain_job
from ._read_slurm_job import find as find
