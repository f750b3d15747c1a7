"""Reads memory and times as Slurm writes them. Raises InvalidRequest for what Slurm
refuses."""

from __future__ import annotations

import math

from podwright.errors import InvalidRequest
from podwright.slurm.site.time_and_memory import MIB, memory_bytes, time_seconds

_MAX_DIGITS = 18  #: digits of a number


def is_number(text: str) -> bool:
    """Whether Slurm reads the text as a whole number: ASCII digits, and no more than it can
    count."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def plural(count: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def memory(memory_text: str, option_name: str) -> int:
    """The bytes of `4000`, `4G` or `512K`, in whole MiB, rounded up."""
    try:
        if "." in memory_text:
            raise ValueError
        return -(-memory_bytes(memory_text.strip()) // MIB) * MIB
    except ValueError:
        raise InvalidRequest(
            f"--{option_name}={memory_text}: {memory_text!r} is not an amount of memory",
            option=option_name,
        ) from None


def minutes(time_text: str, option_name: str) -> int:
    """The minutes of `30`, `1:30:00`, `2-0` or `2-12:30`, rounded up."""
    try:
        if "." in time_text:
            raise ValueError
        return math.ceil(min(time_seconds(time_text) / 60, 1 << 30))
    except ValueError:
        raise InvalidRequest(
            f"--{option_name}={time_text}: {time_text!r} is not a time", option=option_name
        ) from None
