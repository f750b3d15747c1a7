"""What a check finds, as values: what is wrong with which part, what that means, what to do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: How much a finding weighs, least first. note: of a job, not of the node. fail: unfit for jobs.
LEVELS = ("note", "warn", "fail")
#: What the reason of a drained node begins with, so that what is ours is told from a person's.
PREFIX = "podwright: "
_LONGEST = 120  # letters of a reason: sinfo shows them in one line


class HealthFinding(msgspec.Struct, frozen=True):
    """check: its name in the table. part: what is meant, such as `GPU 3`; empty: the node.
    problem: a few words, which a drained node's reason shows. means, do: sentences."""

    check: str
    level: str
    part: str
    problem: str
    means: str
    do: str

    def __str__(self) -> str:
        return f"{self.part} {self.problem}".strip()


class NodeReport(msgspec.Struct, frozen=True):
    """A node, looked at. checks: names of those that ran. seconds: that it took."""

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
    """Why a node is drained, in one line that names the part; empty for a fit one."""
    words = list(dict.fromkeys(str(f) for f in findings if f.level == "fail"))
    if not words:
        return ""
    text = words[0]
    for n, word in enumerate(words[1:], 1):
        if len(text) + len(word) > _LONGEST:
            return f"{PREFIX}{text}; {len(words) - n} more"
        text += f"; {word}"
    return PREFIX + "".join(letter if letter.isprintable() else "?" for letter in text)
