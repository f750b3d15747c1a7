"""How often a start may fail before its job is held. Pure.

The count is written in words at the job itself, where the guest keeps words for people (Slurm's
AdminComment, a status in Kubernetes). So no restart of anything forgets it, and everybody can read
why.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HELD: Final = "Held: when that is mended"
_TRIED: Final = re.compile(r"try (\d+) of \d+ failed")


class FailedStart(NamedTuple):
    """A start that failed. words: for the job's record. hold: the job is held instead of being
    tried again."""

    words: str
    hold: bool


def failed(
    before: int, most: int, problem: str, release: str, *, final: bool = False
) -> FailedStart:
    """Another attempt failed. before: how many had. most: with which one the job is held.

    release: what one does to have it tried again. final: trying again cannot help.
    """
    count = before + 1
    hold = final or count >= most
    words = problem if final else f"try {count} of {most} failed: {problem}"
    return FailedStart(f"{words} {HELD}, {release}" if hold else words, hold)


def attempts(words: str) -> int:
    """How many failed, by the job's record."""
    match = _TRIED.match(words)
    return int(match[1]) if match else 0
