"""The rules: each finds one kind of mistake, says why it is one, and how the line should read.

A rule marked sure is one whose correction cannot be wrong; only those are applied by `--fix`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from podwright.slurm.lint._script import Script
from podwright.slurm.requests import Version


@dataclass(frozen=True)
class Site:
    """What is known of the Slurm that the script is for: its version, its TopologyPlugin."""

    version: Version | None = None
    topology: str = ""


@dataclass(frozen=True)
class Finding:
    """One mistake. `line` from 1; `corrected` the line as it should read ("" where there is no
    one line), `before`: it is a new line to stand before `line`; `sure`: --fix applies it."""

    rule: str
    line: int
    text: str
    reason: str
    corrected: str = ""
    sure: bool = False
    before: bool = False


Rule = Callable[[Script, Site], Iterator[Finding]]
_RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    """Register a rule under its name, blanks as dashes."""
    _RULES[function.__name__.strip("_").replace("_", "-")] = function
    return function


def found(
    script: Script,
    name: str,
    line: int,
    reason: str,
    corrected: str = "",
    *,
    sure: bool = False,
    before: bool = False,
) -> Finding:
    """A finding with the text of its line."""
    text = script.lines[line - 1] if 0 < line <= len(script.lines) else ""
    return Finding(name, line, text, reason, corrected, sure, before)


def rules() -> dict[str, Rule]:
    """All rules, by name."""
    from podwright.slurm.lint import _program, _request  # each registers its own

    assert _program
    assert _request
    return _RULES


def lint(script: Script, site: Site | None = None) -> list[Finding]:
    """All findings, by line."""
    site = site or Site()
    findings = [finding for check in rules().values() for finding in check(script, site)]
    return sorted(findings, key=lambda f: (f.line, f.rule))
