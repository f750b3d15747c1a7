"""Mistakes in job scripts, before they cost a night in the queue."""

from podwright.slurm.lint._fix import difference, fixed
from podwright.slurm.lint._rules import Finding, Site, lint, rules
from podwright.slurm.lint._script import Script, read_script

__all__ = ["Finding", "Script", "Site", "difference", "fixed", "lint", "read_script", "rules"]
