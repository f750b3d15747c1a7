"""Proves Slurm's files before a site installs them: Slurm's own slurmctld starts with them, and
jobs fill its nodes. `prove` yields a `Promise` for each purpose of the files, with Slurm's own
words where it is not kept."""

from podwright.gpu.proof._check_promises import prove
from podwright.gpu.proof._planned_files import planned_files
from podwright.gpu.proof._prove_planned_files import proved

__all__ = ["planned_files", "prove", "proved"]
