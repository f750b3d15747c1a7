"""Values as sacct writes them: times, durations, memory, TRES. Source: sacct(1), 22.05 to 26.05."""

from __future__ import annotations

import math
from datetime import datetime, tzinfo
from functools import lru_cache

from podwright.slurm.site.time_and_memory import memory_bytes, time_seconds

_COUNT_FACTORS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3}
_EMPTY_VALUES = ("", "Unknown", "None", "N/A", "NONE", "INVALID")


def when(time_text: str, zone: tzinfo | None) -> float:
    """Return seconds since 1970; NaN for none. Raises ValueError.

    A time without an offset is of `zone`; None: this machine's. A text of digits alone is already
    in seconds (SLURM_TIME_FORMAT=%s).
    """
    if time_text in _EMPTY_VALUES:
        return math.nan
    if time_text.isdecimal():
        return float(time_text)
    moment = datetime.fromisoformat(time_text)
    return (moment if moment.tzinfo or zone is None else moment.replace(tzinfo=zone)).timestamp()


def duration(duration_text: str) -> float:
    """Return the seconds of a time. Infinite: no limit; NaN: not given. Raises ValueError."""
    return math.nan if duration_text in _EMPTY_VALUES else time_seconds(duration_text)


@lru_cache(4096)
def memory(memory_text: str, cpus: int, nodes: int) -> int:
    """Return bytes in total, of `16G`, or `4Gc` for each core and `64Gn` for each node.

    The last two forms are of 22.05 and older. 0: not given. Raises ValueError.
    """
    if memory_text in _EMPTY_VALUES or memory_text == "0":
        return 0
    if multiplier := {"c": max(1, cpus), "n": max(1, nodes)}.get(memory_text[-1]):
        return memory_bytes(memory_text[:-1]) * multiplier
    return memory_bytes(memory_text)


@lru_cache(65536)
def tres(tres_text: str) -> dict[str, str]:
    """Return `cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G` by name. Raises ValueError."""
    counts_by_name = {}
    for entry in tres_text.split(",") if tres_text not in _EMPTY_VALUES else ():
        tres_name, sign, count_text = entry.partition("=")
        if not sign or not tres_name:
            raise ValueError(f"{entry!r} is not a TRES")
        counts_by_name[tres_name] = count_text
    return counts_by_name


def count(count_text: str) -> int:
    """Return the count of a TRES: `4`, or `1K`. Raises ValueError."""
    suffix = count_text[-1:] if count_text[-1:] in "KMG" else ""
    return int(float(count_text.removesuffix(suffix)) * _COUNT_FACTORS[suffix])


#: The TRES that count as devices by default; the first that a job has is used.
DEVICE_TRES_NAMES = ("license/ipu", "gres/ipu", "gres/vipu", "gres/gpu", "gres/xpu")


def devices(tres_counts: dict[str, str], wanted_tres: str) -> int:
    """Return the number of the TRES `wanted_tres`; 0: none.

    Typed ones (`gres/gpu:a100`) are summed when there is no total. An empty `wanted_tres` takes the
    first of DEVICES that is there.
    """
    for tres_name in (wanted_tres,) if wanted_tres else DEVICE_TRES_NAMES:
        if tres_name in tres_counts:
            return count(tres_counts[tres_name])
        typed_counts = [
            count(text)
            for typed_name, text in tres_counts.items()
            if typed_name.startswith(f"{tres_name}:")
        ]
        if typed_counts:
            return sum(typed_counts)
    return 0
