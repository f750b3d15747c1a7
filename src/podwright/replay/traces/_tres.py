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
    """Return seconds since 1970; NaN for none. Raises ValueError.

    A time without an offset is of `zone`; None: this machine's. A text of digits alone is already
    in seconds (SLURM_TIME_FORMAT=%s).
    """
    if text in _NONE:
        return math.nan
    if text.isdecimal():
        return float(text)
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo or zone is None else moment.replace(tzinfo=zone)).timestamp()


def duration(text: str) -> float:
    """Return the seconds of `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`.

    A fraction is allowed. Infinite: no limit; NaN: not given. Raises ValueError.
    """
    if text in _NONE:
        return math.nan
    if text in _ENDLESS:
        return math.inf
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    if len(parts) > 3 or (dash and not days.isdecimal()) or not min(parts) >= 0:
        raise ValueError(f"{text!r} is not a time")
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
    """Return bytes in total, of `16G`, or `4Gc` for each core and `64Gn` for each node.

    The last two forms are of 22.05 and older. 0: not given. Raises ValueError.
    """
    if text in _NONE or text == "0":
        return 0
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory")
    each = {"": 1, "c": max(1, cpus), "n": max(1, nodes)}[match[3]]
    return math.ceil(float(match[1]) * _UNITS[match[2]] * each)


@lru_cache(65536)
def tres(text: str) -> dict[str, str]:
    """Return `cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G` by name. Raises ValueError."""
    out = {}
    for word in text.split(",") if text not in _NONE else ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError(f"{word!r} is not a TRES")
        out[name] = value
    return out


def count(text: str) -> int:
    """Return the count of a TRES: `4`, or `1K`. Raises ValueError."""
    unit = text[-1:] if text[-1:] in "KMG" else ""
    return int(float(text.removesuffix(unit)) * _COUNTS[unit])


#: The TRES that count as devices by default; the first that a job has is used.
DEVICES = ("license/ipu", "gres/ipu", "gres/vipu", "gres/gpu", "gres/xpu")


def devices(resources: dict[str, str], wanted: str) -> int:
    """Return the number of the TRES `wanted`; 0: none.

    Typed ones (`gres/gpu:a100`) are summed when there is no total. An empty `wanted` takes the
    first of DEVICES that is there.
    """
    for name in (wanted,) if wanted else DEVICES:
        if name in resources:
            return count(resources[name])
        typed = [count(value) for key, value in resources.items() if key.startswith(f"{name}:")]
        if typed:
            return sum(typed)
    return 0
