"""The findings of a check, as values: the part, its problem, what the problem means, and what to
do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: The levels of a finding, least first. note: about a job, not the node. fail: unfit for jobs.
LEVELS = ("note", "warn", "fail")
#: The prefix of our reasons for draining, which distinguishes them from a person's.
REASON_PREFIX = "podwright: "
_MAX_REASON_CHARS = 120  # characters of a reason: sinfo shows it in one line


class HealthFinding(msgspec.Struct, frozen=True):
    """check: the name of the check in the table. part: the part of the node, such as `GPU 3`; empty
    for the node itself. problem: a few words, which are in the reason of a drained node. means, do:
    sentences.
    """

    check: str
    level: str
    part: str
    problem: str
    means: str
    do: str

    def __str__(self) -> str:
        return f"{self.part} {self.problem}".strip()


class NodeReport(msgspec.Struct, frozen=True):
    """The report of one node. checks: names of the checks that ran. seconds: how long they took."""

    host: str
    checks: tuple[str, ...]
    findings: tuple[HealthFinding, ...]
    seconds: float
    simulated: bool = False

    @property
    def fit(self) -> bool:
        """Whether jobs may run here."""
        return not any(finding.level == "fail" for finding in self.findings)


def reason(findings: Iterable[HealthFinding]) -> str:
    """Return why a node is drained, in one line that names the part; empty for a fit node."""
    failed_findings = list(
        dict.fromkeys(str(finding) for finding in findings if finding.level == "fail")
    )
    if not failed_findings:
        return ""
    reason_text = failed_findings[0]
    for findings_shown, finding_text in enumerate(failed_findings[1:], 1):
        if len(reason_text) + len(finding_text) > _MAX_REASON_CHARS:
            return f"{REASON_PREFIX}{reason_text}; {len(failed_findings) - findings_shown} more"
        reason_text += f"; {finding_text}"
    return REASON_PREFIX + "".join(
        character if character.isprintable() else "?" for character in reason_text
    )
