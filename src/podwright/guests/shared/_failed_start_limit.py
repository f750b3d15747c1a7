"""How often a start may fail before its job is held. Pure.

The count is written in words at the job itself, where the guest keeps words for people (Slurm's
AdminComment, a status in Kubernetes). So no restart of anything forgets it, and everybody can read
why.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HELD: Final = "Held: when that is mended"
_TRIED_PATTERN: Final = re.compile(r"try (\d+) of \d+ failed")


class FailedStart(NamedTuple):
    """A start that failed. words: for the job's record. hold: the job is held instead of being
    tried again."""

    words: str
    hold: bool


def failed(
    earlier_attempts: int,
    attempt_limit: int,
    problem: str,
    release_hint: str,
    *,
    final: bool = False,
) -> FailedStart:
    """Another attempt failed. earlier_attempts: how many had. attempt_limit: with which one the job
    is held.

    release_hint: what one does to have it tried again. final: trying again cannot help.
    """
    count = earlier_attempts + 1
    is_held = final or count >= attempt_limit
    message = problem if final else f"try {count} of {attempt_limit} failed: {problem}"
    return FailedStart(f"{message} {HELD}, {release_hint}" if is_held else message, is_held)


def attempts(record_text: str) -> int:
    """How many failed, by the job's record."""
    attempt_match = _TRIED_PATTERN.match(record_text)
    return int(attempt_match[1]) if attempt_match else 0
