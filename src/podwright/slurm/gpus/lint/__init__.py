"""Mistakes in job scripts, before they cost a night in the queue."""

from podwright.slurm.gpus.lint._fix import difference, fix, fixed
from podwright.slurm.gpus.lint._formats import (
    as_annotations,
    as_rows,
    as_sarif,
    as_text,
    whole_text,
)
from podwright.slurm.gpus.lint._rule import Case, Finding, Found, Level, Rule
from podwright.slurm.gpus.lint._rules import lint, rules
from podwright.slurm.gpus.lint._script import Script, read_script
from podwright.slurm.gpus.lint._site_cache import (
    CachedSite,
    PartitionLimits,
    find_site,
    read_help,
    read_site,
)

__all__ = [
    "CachedSite",
    "Case",
    "Finding",
    "Found",
    "Level",
    "PartitionLimits",
    "Rule",
    "Script",
    "as_annotations",
    "as_rows",
    "as_sarif",
    "as_text",
    "difference",
    "find_site",
    "fix",
    "fixed",
    "lint",
    "read_help",
    "read_script",
    "read_site",
    "rules",
    "whole_text",
]
