"""Applies the corrections that are sure, and shows what would change."""

from __future__ import annotations

from collections.abc import Iterable

from podwright.gpu.lint._apply_rules import lint
from podwright.gpu.lint._rule_types import Finding
from podwright.gpu.lint._script import read_script
from podwright.gpu.lint._site_cache import CachedSite

_MAX_FIX_ROUNDS = 20


def fixed(script_text: str, findings: Iterable[Finding]) -> str:
    """The script with the sure corrections of these findings; all else stays byte for byte.

    Of several corrections of one line the first is made: `fix` makes them all, one after another.
    """
    sure_findings = [finding for finding in findings if finding.sure]
    for finding in sure_findings:
        if finding.whole:
            return finding.whole
    lines = script_text.split("\n")
    for finding in sorted(sure_findings, key=lambda f: -f.line):
        if not 0 < finding.line <= len(lines):
            continue
        old_line = lines[finding.line - 1]
        if old_line.removesuffix("\r") != finding.text:
            continue  # another correction of this line came first
        line_end = old_line[len(finding.text) :]
        new_line = finding.corrected + line_end
        lines[finding.line - 1] = f"{new_line}\n{old_line}" if finding.before else new_line
    return "\n".join(lines)


def fix(
    script_text: str, site: CachedSite | None = None, *, better: bool = False, script_name: str = ""
) -> str:
    """The script with all sure corrections, including those that appear only after others were
    made."""
    for _ in range(_MAX_FIX_ROUNDS):
        fixed_text = fixed(
            script_text, lint(read_script(script_text, script_name), site, better=better)
        )
        if fixed_text == script_text:
            break
        script_text = fixed_text
    return script_text


def difference(old_text: str, new_text: str, file_name: str) -> str:
    """A unified diff, empty where nothing changes."""
    import difflib

    return "".join(
        difflib.unified_diff(
            old_text.splitlines(keepends=True),
            new_text.splitlines(keepends=True),
            file_name,
            f"{file_name} (corrected)",
        )
    )
