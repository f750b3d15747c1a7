"""Reads memory, times and lists of names as Slurm writes them. Raises InvalidRequest for what Slurm
refuses."""

from __future__ import annotations

import re

from podwright.errors import InvalidRequest

#: Slurm counts memory in MiB; a number without a unit is of these.
MIB = 1 << 20
_LONGEST = 18  #: digits of a number
_SIZES = {"": MIB, "k": 1 << 10, "m": MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def is_number(text: str) -> bool:
    """Whether Slurm reads the text as a whole number: ASCII digits, and no more than it can
    count."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST


def plural(count: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def memory(text: str, option: str) -> int:
    """The bytes of `4000`, `4G` or `512K`, in whole MiB, rounded up."""
    match = re.fullmatch(r"([0-9]{1,18})([kmgtp]?)b?", text.strip(), re.I)
    if not match:
        raise InvalidRequest(
            f"--{option}={text}: {text!r} is not an amount of memory", option=option
        )
    size = int(match[1]) * _SIZES[match[2].lower()]
    return -(-size // MIB) * MIB


def minutes(text: str, option: str) -> int:
    """The minutes of `30`, `1:30:00`, `2-0` or `2-12:30`, rounded up."""
    if text.lower() in ("infinite", "unlimited", "-1"):
        return 1 << 30
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if len(parts) > 3 or not all(is_number(p) for p in parts) or (dash and not is_number(days)):
        raise InvalidRequest(f"--{option}={text}: {text!r} is not a time", option=option)
    numbers = [int(p) for p in parts]
    if dash:
        hours, mins, secs = (*numbers, 0, 0)[:3]
    elif len(numbers) == 3:
        hours, mins, secs = numbers
    else:
        hours, mins, secs = (0, *numbers, 0)[:3]
    return (int(days or 0) * 24 + hours) * 60 + mins + (secs > 0)


def names(text: str) -> tuple[str, ...]:
    """The names in `n[1-3,7],m2`, in order."""
    expanded: list[str] = []
    for part in re.findall(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", text):
        if part:
            expanded += _spread_out(part)
    return tuple(dict.fromkeys(expanded))


def _spread_out(text: str) -> list[str]:
    match = re.fullmatch(r"(.*?)\[([^\]]*)\](.*)", text)
    if not match:
        return [text]
    heads: list[str] = []
    for piece in match[2].split(","):
        low, dash, high = piece.partition("-")
        if not is_number(low) or (dash and not is_number(high)):
            raise InvalidRequest(f"{text!r} is not a list of nodes")
        last = int(high) if dash else int(low)
        heads += [
            f"{match[1]}{n:0{len(low)}d}" for n in range(int(low), min(last, int(low) + 65536) + 1)
        ]
    return [head + tail for tail in _spread_out(match[3]) for head in heads]
