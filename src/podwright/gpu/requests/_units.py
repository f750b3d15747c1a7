"""Reads memory, times and lists of names as Slurm writes them. Raises InvalidRequest for what Slurm
refuses."""

from __future__ import annotations

import re

from podwright.errors import InvalidRequest

#: Slurm counts memory in MiB; a number without a unit is of these.
MIB = 1 << 20
_MAX_DIGITS = 18  #: digits of a number
_BYTES_BY_SUFFIX = {"": MIB, "k": 1 << 10, "m": MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def is_number(text: str) -> bool:
    """Whether Slurm reads the text as a whole number: ASCII digits, and no more than it can
    count."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def plural(count: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def memory(memory_text: str, option_name: str) -> int:
    """The bytes of `4000`, `4G` or `512K`, in whole MiB, rounded up."""
    memory_match = re.fullmatch(r"([0-9]{1,18})([kmgtp]?)b?", memory_text.strip(), re.I)
    if not memory_match:
        raise InvalidRequest(
            f"--{option_name}={memory_text}: {memory_text!r} is not an amount of memory",
            option=option_name,
        )
    count = int(memory_match[1]) * _BYTES_BY_SUFFIX[memory_match[2].lower()]
    return -(-count // MIB) * MIB


def minutes(time_text: str, option_name: str) -> int:
    """The minutes of `30`, `1:30:00`, `2-0` or `2-12:30`, rounded up."""
    if time_text.lower() in ("infinite", "unlimited", "-1"):
        return 1 << 30
    days_text, dash, clock_text = time_text.rpartition("-")
    clock_parts = clock_text.split(":")
    if (
        len(clock_parts) > 3
        or not all(is_number(part) for part in clock_parts)
        or (dash and not is_number(days_text))
    ):
        raise InvalidRequest(
            f"--{option_name}={time_text}: {time_text!r} is not a time", option=option_name
        )
    clock_numbers = [int(part) for part in clock_parts]
    if dash:
        hours, mins, secs = (*clock_numbers, 0, 0)[:3]
    elif len(clock_numbers) == 3:
        hours, mins, secs = clock_numbers
    else:
        hours, mins, secs = (0, *clock_numbers, 0)[:3]
    return (int(days_text or 0) * 24 + hours) * 60 + mins + (secs > 0)
