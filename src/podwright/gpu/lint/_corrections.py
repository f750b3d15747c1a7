"""Makes the corrections that findings have."""

from __future__ import annotations

from collections.abc import Iterable

from podwright.gpu.lint._rule_types import Finding


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
