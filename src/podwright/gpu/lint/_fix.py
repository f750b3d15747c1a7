"""Applies the corrections that are sure, and shows what would change."""

from __future__ import annotations

from collections.abc import Iterable

from podwright.gpu.lint._rule import Finding
from podwright.gpu.lint._rules import lint
from podwright.gpu.lint._script import read_script
from podwright.gpu.lint._site_cache import CachedSite

_ROUNDS = 20


def fixed(text: str, findings: Iterable[Finding]) -> str:
    """The script with the sure corrections of these findings; all else stays byte for byte.

    Of several corrections of one line the first is made: `fix` makes them all, one after another.
    """
    sure = [finding for finding in findings if finding.sure]
    for finding in sure:
        if finding.whole:
            return finding.whole
    lines = text.split("\n")
    for finding in sorted(sure, key=lambda f: -f.line):
        if not 0 < finding.line <= len(lines):
            continue
        old = lines[finding.line - 1]
        if old.removesuffix("\r") != finding.text:
            continue  # another correction of this line came first
        end = old[len(finding.text) :]
        new = finding.corrected + end
        lines[finding.line - 1] = f"{new}\n{old}" if finding.before else new
    return "\n".join(lines)


def fix(text: str, site: CachedSite | None = None, *, better: bool = False, name: str = "") -> str:
    """The script with all sure corrections, including those that appear only after others were
    made."""
    for _ in range(_ROUNDS):
        after = fixed(text, lint(read_script(text, name), site, better=better))
        if after == text:
            break
        text = after
    return text


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
