"""Finds mistakes in job scripts before they cost a night in the queue."""

from podwright.gpu.lint._apply_rules import lint, rules
from podwright.gpu.lint._checked_script import CheckedScript, LintSettings, check_script
from podwright.gpu.lint._corrections import fixed
from podwright.gpu.lint._fix import difference, fix
from podwright.gpu.lint._formats import (
    as_annotations,
    as_rows,
    as_sarif,
    as_text,
    foreign_partitions,
    rule_rows,
    rules_text,
    whole_text,
)
from podwright.gpu.lint._merge_script_options import scripted_request
from podwright.gpu.lint._rule_types import Case, Finding, Found, Level, Rule
from podwright.gpu.lint._rules_values import UNKNOWN_PARTITION
from podwright.gpu.lint._script import Script, read_script
from podwright.gpu.lint._script_files import read_file, replace_file
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
    "CheckedScript",
    "Finding",
    "Found",
    "Level",
    "LintSettings",
    "PartitionLimits",
    "Rule",
    "Script",
    "as_annotations",
    "as_rows",
    "as_sarif",
    "as_text",
    "cache_path",
    "check_script",
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
    "rule_rows",
    "rules",
    "rules_text",
    "scripted_request",
    "whole_text",
]
