"""Proves Slurm's files before a site installs them: Slurm's own slurmctld starts with them, and
jobs fill its nodes. `prove` yields a `Promise` for each purpose of the files, with Slurm's own
words where it is not kept."""

from ._check_promises import prove as prove
from ._planned_files import planned_files as planned_files
from ._prove_planned_files import proved as proved
