"""Applies corrections that are sure, and shows what would change."""

from __future__ import annotations

from collections.abc import Iterable

from podwright.slurm.lint._rules import Finding


def fixed(text: str, findings: Iterable[Finding]) -> str:
    """The script with the sure corrections; everything else stays byte for byte."""
    lines = text.splitlines(keepends=True)
    for finding in sorted(findings, key=lambda f: -f.line):
        if not finding.sure or not 0 < finding.line <= len(lines):
            continue
        old = lines[finding.line - 1]
        body = old.rstrip("\r\n")
        if body != finding.text:
            continue  # another correction of this line came first; the next run sees the rest
        end = old[len(body) :]
        new = finding.corrected + end
        lines[finding.line - 1] = new + old if finding.before else new
    return "".join(lines)


def difference(before: str, after: str, name: str) -> str:
    """A unified diff, empty where nothing changes."""
    import difflib

    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            name,
            f"{name} (corrected)",
        )
    )
