"""Values of sbatch's options that have a form of their own: times, memory, arrays.

Each follows Slurm's source, and is held against real sbatch by tests/outer/gpu/test_lint_values.py.
"""

from __future__ import annotations

import re

from podwright.slurm.gpus.requests import Given

_N = r"[0-9]{1,18}"
_TIME = re.compile(rf"{_N}(:{_N}){{0,2}}|{_N}-({_N}(:{_N}){{0,2}})?")
_ENDLESS = re.compile(r"-1|infinite|unlimited", re.I)
_MEMORY = re.compile(rf"{_N}([kmgt]b?)?", re.I)
_ARRAY = re.compile(rf"\[?{_N}\]?(-{_N}\]?(:{_N}\]?)?)?(%.*)?")


def problem_of_value(given: Given) -> str:
    """What sbatch or slurmctld finds wrong with the value, or nothing."""
    name, value = given.name, given.value
    if name in ("time", "time-min") and minutes(value) is None:
        return f"--{name}={value} is no time: write minutes, hours:minutes:seconds or days-hours"
    if name in ("mem", "mem-per-cpu", "mem-per-gpu") and not _MEMORY.fullmatch(value):
        return f"--{name}={value} is no size: write a whole number and K, M, G or T"
    if name == "array":
        return _array(value)
    return ""


def minutes(value: str) -> float | None:
    """The minutes of a time, infinity where there is no limit; None for what sbatch refuses."""
    if _ENDLESS.fullmatch(value):
        return float("inf")
    if not _TIME.fullmatch(value):
        return None
    days, dash, rest = value.rpartition("-")
    parts = [int(part or 0) for part in rest.split(":")]
    if dash:
        hours, mins, seconds = [*parts, 0, 0][:3]
        return int(days) * 1440 + hours * 60 + mins + seconds / 60
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + parts[2] / 60
    return parts[0] + (parts[1] / 60 if len(parts) == 2 else 0)


def _array(value: str) -> str:
    for part in value.split(","):
        if not part:
            continue
        if re.fullmatch(r"%\d*|\[|\]", part):
            continue
        if not _ARRAY.fullmatch(part):
            return f"--array={value}: write 0-9, 1,3,5 or 0-9:2, and %4 for four at a time"
        numbers = [int(n) for n in re.findall(r"\d+", part.partition("%")[0])]
        if len(numbers) > 1 and numbers[1] < numbers[0]:
            return f"--array={value} runs backwards"
        if len(numbers) > 2 and numbers[2] == 0:
            return f"--array={value} has steps of nothing"
    return ""
