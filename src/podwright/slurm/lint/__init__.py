"""Mistakes in job scripts, before they cost a night in the queue."""

from podwright.slurm.lint._fix import difference, fixed
from podwright.slurm.lint._rules import RULES, Finding, Site, lint
from podwright.slurm.lint._script import Script, read_script

__all__ = ["RULES", "Finding", "Script", "Site", "difference", "fixed", "lint", "read_script"]
