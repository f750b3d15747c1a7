"""Finds mistakes in job scripts before they cost a night in the queue."""

from podwright.gpu.lint._fix import difference, fix, fixed
from podwright.gpu.lint._formats import (
    as_annotations,
    as_rows,
    as_sarif,
    as_text,
    foreign_partitions,
    whole_text,
)
from podwright.gpu.lint._rule import Case, Finding, Found, Level, Rule
from podwright.gpu.lint._rules import lint, rules
from podwright.gpu.lint._rules_values import UNKNOWN_PARTITION
from podwright.gpu.lint._script import Script, read_script
from podwright.gpu.lint._script_files import read_file, replace_file
from podwright.gpu.lint._scripted_request import scripted_request
from podwright.gpu.lint._site_cache import (
    CachedSite,
    PartitionLimits,
    cache_path,
    chosen_site,
    find_site,
    read_help,
    read_site,
)

__all__ = [
    "UNKNOWN_PARTITION",
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
    "cache_path",
    "chosen_site",
    "difference",
    "find_site",
    "fix",
    "fixed",
    "foreign_partitions",
    "lint",
    "read_file",
    "read_help",
    "read_script",
    "read_site",
    "replace_file",
    "rules",
    "scripted_request",
    "whole_text",
]
