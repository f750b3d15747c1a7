"""Findings as text, JSON, SARIF 2.1.0 (code scanning) and GitHub's annotations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from podwright.slurm.gpus.lint._rule import Finding
from podwright.slurm.gpus.lint._rules import rules

Files = Sequence[tuple[str, Sequence[Finding]]]
_LEVELS = {"mistake": "error", "better": "note"}


def as_text(path: str, findings: Iterable[Finding]) -> list[str]:
    """Lines for people: where, what, and how the line should read."""
    lines = []
    for finding in findings:
        kind = "" if finding.level == "mistake" else " (could be better)"
        lines.append(f"{path}:{finding.line}: {finding.rule}{kind}: {finding.reason}")
        if finding.corrected:
            if not finding.before:
                lines.append(f"    - {finding.text.strip()}")
            lines.append(f"    + {finding.corrected.strip()}")
    return lines


def as_rows(files: Files) -> list[dict[str, Any]]:
    """Rows for programs, with each rule's evidence."""
    return [
        {
            "file": whole_text(path),
            "line": one.line,
            "rule": one.rule,
            "level": one.level,
            "reason": whole_text(one.reason),
            "text": whole_text(one.text),
            "corrected": whole_text(one.corrected),
            "before": one.before,
            "sure": one.sure,
            "evidence": rules()[one.rule].evidence,
        }
        for path, findings in files
        for one in findings
    ]


def as_sarif(files: Files, version: str) -> dict[str, Any]:
    """A log of one run in SARIF 2.1.0, as GitHub and editors read it."""
    used = list(rules().values())
    index = {rule.id: number for number, rule in enumerate(used)}
    results = [
        {
            "ruleId": one.rule,
            "ruleIndex": index[one.rule],
            "level": _LEVELS[one.level],
            "message": {"text": whole_text(one.reason)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _address(path)},
                        "region": {"startLine": max(one.line, 1)},
                    }
                }
            ],
        }
        for path, findings in files
        for one in findings
    ]
    driver = {
        "name": "podwright slurm lint",
        "version": version,
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.says},
                "help": {"text": f"Evidence: {rule.evidence}"},
                "defaultConfiguration": {"level": _LEVELS[rule.level]},
            }
            for rule in used
        ],
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def as_annotations(files: Files) -> list[str]:
    """Commands of a GitHub workflow, one for each finding."""
    return [
        f"::{'error' if one.level == 'mistake' else 'notice'} file={_property(path)},"
        f"line={max(one.line, 1)},title={_property(one.rule)}::{_data(one.reason)}"
        for path, findings in files
        for one in findings
    ]


def whole_text(text: str) -> str:
    """Without bytes that are no text, which strict readers of JSON refuse."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _address(path: str) -> str:
    """A file's name as SARIF has it: a URI."""
    from urllib.parse import quote

    return ("file://" if path.startswith("/") else "") + quote(
        path.encode("utf-8", "surrogateescape")
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
