"""Findings as text, JSON, SARIF 2.1.0 (code scanning) and GitHub's annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from podwright.gpu.lint._apply_rules import rules
from podwright.gpu.lint._rule_types import Finding
from podwright.gpu.lint._rules_values import UNKNOWN_PARTITION

Files = Sequence[tuple[str, Sequence[Finding]]]
_MAX_SHOWN_LINES = 3  # lines that stand for all others
_SARIF_LEVELS = {"mistake": "error", "better": "note"}


def as_text(path: str, findings: Iterable[Finding]) -> list[str]:
    """Lines for people: the place, the mistake, and the corrected line."""
    lines = []
    for finding in findings:
        note = "" if finding.level == "mistake" else " (could be better)"
        lines.append(f"{path}:{finding.line}: {finding.rule}{note}: {finding.reason}")
        if finding.corrected:
            if not finding.before:
                lines.append(f"    - {finding.text.strip()}")
            lines.append(f"    + {finding.corrected.strip()}")
    return lines


def foreign_partitions(findings_by_file: Files) -> str:
    """One line for all scripts that name partitions which the site lacks; "" where none does.

    A folder of scripts written for other clusters would otherwise print the same finding for each.
    """
    line_counts = Counter(
        finding.text.strip()
        for _, findings in findings_by_file
        for finding in findings
        if finding.rule == UNKNOWN_PARTITION
    )
    if not line_counts:
        return ""
    common_lines = ", ".join(
        f"{text} ({count})" for text, count in line_counts.most_common(_MAX_SHOWN_LINES)
    )
    other_lines = (
        f" and {len(line_counts) - _MAX_SHOWN_LINES} other lines"
        if len(line_counts) > _MAX_SHOWN_LINES
        else ""
    )
    return (
        f"{line_counts.total()} of {len(findings_by_file)} scripts name a partition that this "
        "site's Slurm does not "
        f"have: {common_lines}{other_lines}. They were written for another site: --ignore "
        f"{UNKNOWN_PARTITION} leaves this out, and --json lists each."
    )


def as_rows(findings_by_file: Files) -> list[dict[str, Any]]:
    """Rows for programs, each with the evidence of its rule."""
    return [
        {
            "file": whole_text(path),
            "line": finding.line,
            "rule": finding.rule,
            "level": finding.level,
            "reason": whole_text(finding.reason),
            "text": whole_text(finding.text),
            "corrected": whole_text(finding.corrected),
            "before": finding.before,
            "sure": finding.sure,
            "evidence": finding.evidence,
        }
        for path, findings in findings_by_file
        for finding in findings
    ]


def as_sarif(findings_by_file: Files, version: str) -> dict[str, Any]:
    """A log of one run in SARIF 2.1.0, as GitHub and editors read it."""
    all_rules = list(rules().values())
    rule_index = {rule.id: position for position, rule in enumerate(all_rules)}
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": rule_index[finding.rule],
            "level": _SARIF_LEVELS[finding.level],
            "message": {"text": whole_text(finding.reason)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _sarif_uri(path)},
                        "region": {"startLine": max(finding.line, 1)},
                    }
                }
            ],
        }
        for path, findings in findings_by_file
        for finding in findings
    ]
    tool_driver = {
        "name": "podwright slurm lint",
        "version": version,
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.says},
                "help": {"text": f"Evidence: {rule.evidence}"},
                "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
            }
            for rule in all_rules
        ],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": tool_driver}, "results": results}],
    }


def as_annotations(findings_by_file: Files) -> list[str]:
    """Commands of a GitHub workflow, one for each finding."""
    return [
        f"::{'error' if finding.level == 'mistake' else 'notice'} file={_escaped_property(path)},"
        f"line={max(finding.line, 1)},title={_escaped_property(finding.rule)}"
        f"::{_escaped_message(finding.reason)}"
        for path, findings in findings_by_file
        for finding in findings
    ]


def whole_text(text: str) -> str:
    """The text without bytes that are not valid text, which strict JSON readers refuse."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _sarif_uri(path: str) -> str:
    """A file's name as SARIF has it: a URI."""
    from urllib.parse import quote

    return ("file://" if path.startswith("/") else "") + quote(
        path.encode("utf-8", "surrogateescape")
    )


def _escaped_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped_message(text).replace(":", "%3A").replace(",", "%2C")


def rule_rows() -> list[dict[str, str]]:
    """Return the rules for programs."""
    return [
        {
            "rule": rule.id,
            "level": rule.level,
            "says": rule.says,
            "fix": rule.fix,
            "evidence": rule.evidence,
        }
        for rule in rules().values()
    ]


def rules_text() -> str:
    """Return the rules for people, each with its evidence."""
    lines = []
    for rule in rules().values():
        lines.append(f"{rule.id} ({rule.level}): {rule.says}")
        lines += [f"    --fix {rule.fix}"] if rule.fix else []
        lines.append(f"    evidence: {rule.evidence}")
    return "\n".join(lines)
