"""The findings of the checks, and what follows for the node: fit for jobs, sick, or not known."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from podwright.ground.judgement import Judgement, Says

#: The prefix of our reasons for draining, which distinguishes them from a person's.
REASON_PREFIX = "podwright: "
#: The prefix where an ended job holds a GPU. Only `podwright node clean` takes such drains back.
HELD_PREFIX = REASON_PREFIX + "held: "
_MAX_REASON_CHARS = 120  # characters of a reason: sinfo shows it in one line


class HealthFinding(msgspec.Struct, frozen=True):
    """check: the name of the check in the table. part, problem, because, source, do, says: see
    `Wrong`.
    """

    check: str
    part: str
    problem: str
    because: str
    source: str
    do: str
    says: Says

    def __str__(self) -> str:
        return f"{self.part} {self.problem}".strip()


class NodeReport(msgspec.Struct, frozen=True):
    """The report of one node.

    checks: names of the checks that ran. left_out: what was not looked at, one noun phrase each.
    seconds: how long the checks took.
    """

    host: str
    checks: tuple[str, ...]
    findings: tuple[HealthFinding, ...]
    seconds: float
    left_out: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def judgement(self) -> Judgement:
        """Whether the node is fit for jobs."""
        for says in (Says.NO, Says.NOT_KNOWN):
            if found := [finding for finding in self.findings if finding.says is says]:
                return Judgement(
                    says=says,
                    because=f"{found[0]}: {found[0].because}" + more(len(found) - 1),
                    source=found[0].source,
                    left_out=self.left_out,
                )
        return Judgement(
            says=Says.YES,
            because="no fault is named",
            source="the driver, PCI and the kernel's log",
            left_out=self.left_out,
        )

    @property
    def fit(self) -> bool | None:
        """Whether jobs may run here; None: not known."""
        return {Says.YES: True, Says.NO: False}.get(self.judgement.says)


def more(count: int) -> str:
    """Return how many findings are not shown."""
    return f" (and {count} more)" if count else ""


def reason(findings: Iterable[HealthFinding]) -> str:
    """Return why a node is drained, in one line that names the part; empty for a fit node."""
    problems = list(dict.fromkeys(str(found) for found in findings if found.says is Says.NO))
    if not problems:
        return ""
    text = problems[0]
    for shown, problem in enumerate(problems[1:], 1):
        if len(text) + len(problem) > _MAX_REASON_CHARS:
            text += more(len(problems) - shown)
            break
        text += f"; {problem}"
    return REASON_PREFIX + "".join(c if c.isprintable() else "?" for c in text)
