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


def names(list_text: str) -> tuple[str, ...]:
    """The names in `n[1-3,7],m2`, in order."""
    expanded_names: list[str] = []
    for part in re.findall(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", list_text):
        if part:
            expanded_names += _expand_brackets(part)
    return tuple(dict.fromkeys(expanded_names))


def _expand_brackets(name_pattern: str) -> list[str]:
    bracket_match = re.fullmatch(r"(.*?)\[([^\]]*)\](.*)", name_pattern)
    if not bracket_match:
        return [name_pattern]
    expanded_heads: list[str] = []
    for range_text in bracket_match[2].split(","):
        low_text, dash, high_text = range_text.partition("-")
        if not is_number(low_text) or (dash and not is_number(high_text)):
            raise InvalidRequest(f"{name_pattern!r} is not a list of nodes")
        last_number = int(high_text) if dash else int(low_text)
        expanded_heads += [
            f"{bracket_match[1]}{number:0{len(low_text)}d}"
            for number in range(int(low_text), min(last_number, int(low_text) + 65536) + 1)
        ]
    return [head + tail for tail in _expand_brackets(bracket_match[3]) for head in expanded_heads]
