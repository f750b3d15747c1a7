"""Values as sacct writes them: times, durations, memory, TRES. Source: sacct(1), 22.05 to 26.05."""

from __future__ import annotations

import math
import re
from datetime import datetime, tzinfo
from functools import lru_cache

_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)B?([nc]?)")
_COUNTS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_NONE = ("", "Unknown", "None", "N/A", "NONE", "INVALID")
_ENDLESS = ("UNLIMITED", "Partition_Limit", "INFINITE")


def when(text: str, zone: tzinfo | None) -> float:
    """Seconds since 1970; NaN for none. Without an offset a time is of `zone`; None: this
    machine's. Digits alone are seconds already (SLURM_TIME_FORMAT=%s). Raises ValueError."""
    if text in _NONE:
        return math.nan
    if text.isdecimal():
        return float(text)
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo or zone is None else at.replace(tzinfo=zone)).timestamp()


def duration(text: str) -> float:
    """Seconds of `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`, with or without
    a fraction; infinite for none at all, NaN where it is not said. Raises ValueError."""
    if text in _NONE:
        return math.nan
    if text in _ENDLESS:
        return math.inf
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    if len(parts) > 3 or (dash and not days.isdecimal()) or not min(parts) >= 0:
        raise ValueError(f"{text!r} is no time")
    if days:
        parts += [0.0] * (3 - len(parts))
    elif len(parts) == 1:
        parts = [0.0, parts[0], 0.0]
    else:
        parts = [0.0] * (3 - len(parts)) + parts
    hours, minutes, seconds = parts
    return float(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


@lru_cache(4096)
def memory(text: str, cpus: int, nodes: int) -> int:
    """Bytes in all, of `16G`, or `4Gc` for each core and `64Gn` for each node (22.05 and older);
    0 where it is not said. Raises ValueError."""
    if text in _NONE or text == "0":
        return 0
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory")
    each = {"": 1, "c": max(1, cpus), "n": max(1, nodes)}[found[3]]
    return math.ceil(float(found[1]) * _UNITS[found[2]] * each)


@lru_cache(65536)
def tres(text: str) -> dict[str, str]:
    """`cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G` by name. Raises ValueError."""
    out = {}
    for word in text.split(",") if text not in _NONE else ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError(f"{word!r} is no TRES")
        out[name] = value
    return out


def count(text: str) -> int:
    """A count of a TRES: `4`, or `1K`. Raises ValueError."""
    unit = text[-1:] if text[-1:] in "KMG" else ""
    return int(float(text.removesuffix(unit)) * _COUNTS[unit])


#: What stands for devices where nobody says, the first that a job has.
DEVICES = ("license/ipu", "gres/ipu", "gres/vipu", "gres/gpu", "gres/xpu")


def devices(said: dict[str, str], wanted: str) -> int:
    """How many of `wanted` there are; typed ones (`gres/gpu:a100`) are summed where the total is
    not said. An empty `wanted`: of the first of DEVICES that there is. 0: none."""
    for name in (wanted,) if wanted else DEVICES:
        if name in said:
            return count(said[name])
        typed = [count(value) for key, value in said.items() if key.startswith(f"{name}:")]
        if typed:
            return sum(typed)
    return 0
