"""How every tool answers a question: yes, no or not known, who says so, and what was left out."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Says(enum.StrEnum):
    """The three answers. What could not be read is NOT_KNOWN, never YES or NO."""

    YES = "yes"
    NO = "no"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """An answer that can be checked: without a source, a tool can say neither yes nor no.

    >>> Judgement(says=Says.NO, because="GPU 3 needs a reset", source="the NVIDIA driver").says
    <Says.NO: 'no'>

    because: one sentence with the evidence, without its full stop.
    source: who says so: "Slurm 26.05.5", "the kernel", "NCCL", a documented rule.
    left_out: what the question had and the answer did not look at, one noun phrase each.
    """

    says: Says
    because: str
    source: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.says is not Says.NOT_KNOWN and not self.source:
            raise ValueError(f"nobody says {self.says}: {self.because}")

    def as_json(self) -> dict[str, object]:
        """The fields as JSON has them; `left_out` is a list of strings."""
        return {
            "says": str(self.says),
            "because": self.because,
            "source": self.source,
            "left_out": list(self.left_out),
        }
