"""The findings of a check, as values: the part, its problem, what the problem means, and what to
do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: The levels of a finding, least first. note: about a job, not the node. fail: unfit for jobs.
LEVELS = ("note", "warn", "fail")
#: The prefix of our reasons for draining, which distinguishes them from a person's.
PREFIX = "podwright: "
_LONGEST = 120  # characters of a reason: sinfo shows it in one line


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
    words = list(dict.fromkeys(str(f) for f in findings if f.level == "fail"))
    if not words:
        return ""
    text = words[0]
    for n, word in enumerate(words[1:], 1):
        if len(text) + len(word) > _LONGEST:
            return f"{PREFIX}{text}; {len(words) - n} more"
        text += f"; {word}"
    return PREFIX + "".join(letter if letter.isprintable() else "?" for letter in text)
