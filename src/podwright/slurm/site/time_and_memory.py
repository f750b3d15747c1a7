"""Times and memory as Slurm's options, files and commands write them. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

#: Slurm counts memory in MiB; a number without a unit is of these.
MIB: Final = 1 << 20
_ENDLESS_WORDS: Final = ("-1", "infinite", "unlimited", "partition_limit")
_TIME_PATTERN: Final = re.compile(
    r"(?:([0-9]{1,18})-)?([0-9]{1,18}(?::[0-9]{1,18})?(?::[0-9]{1,18}(?:\.[0-9]*)?)?)?"
)
_MEMORY_PATTERN: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([KMGTP]?)B?", re.IGNORECASE)


def time_seconds(time_text: str) -> float:
    """Return the seconds of `30` (minutes), `30:15`, `1:30:15`, `2-12` (hours) or `2-12:30:15`.

    sacct's seconds may have a fraction. Infinite: no limit. Raises ValueError.
    """
    if time_text.lower() in _ENDLESS_WORDS:
        return math.inf
    match = _TIME_PATTERN.fullmatch(time_text)
    if match is None or not time_text:
        raise ValueError(f"{time_text!r} is not a time")
    days, clock = match[1], [float(part) for part in (match[2] or "0").split(":")]
    if days is None and len(clock) < 3:
        clock.insert(0, 0.0)
    hours, minutes, seconds = [*clock, 0.0, 0.0][:3]
    return float(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def memory_bytes(memory_text: str, unit: int = MIB) -> int:
    """Return the bytes of `4000`, `4G` or `1.5T`, rounded up.

    unit: what a number without a unit counts, in bytes. Raises ValueError.
    """
    match = _MEMORY_PATTERN.fullmatch(memory_text)
    if match is None:
        raise ValueError(f"{memory_text!r} is not an amount of memory")
    factor = 1 << 10 * " KMGTP".index(match[2].upper()) if match[2] else unit
    return math.ceil(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor
