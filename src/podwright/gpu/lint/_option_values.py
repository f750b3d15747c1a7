"""Values of sbatch's options that have a form of their own: times, memory, arrays.

The checks follow Slurm's source. tests/outer/gpu/test_lint_values.py compares them with real
sbatch.
"""

from __future__ import annotations

import re

from podwright.gpu.requests import Given

_N = r"[0-9]{1,18}"
_TIME = re.compile(rf"{_N}(:{_N}){{0,2}}|{_N}-({_N}(:{_N}){{0,2}})?")
_ENDLESS = re.compile(r"-1|infinite|unlimited", re.I)
_MEMORY = re.compile(rf"{_N}([kmgt]b?)?", re.I)
_ARRAY = re.compile(rf"\[?{_N}\]?(-{_N}\]?(:{_N}\]?)?)?(%.*)?")

# Options whose words are all from a list, in small or capital letters, and whether sbatch requires
# all words of a value to be known, or only one.
_WORDS: dict[str, tuple[str, bool]] = {
    "exclusive": ("exclusive allocation oversubscribe user mcs topo", True),
    "gres-flags": (
        "disable-binding enforce-binding one-task-per-sharing multiple-tasks-per-sharing",
        True,
    ),
    "kill-on-invalid-dep": ("yes no", True),
    "mail-type": (
        "none begin end fail requeue all invalid_depend stage_out time_limit time_limit_90 "
        "time_limit_80 time_limit_50 array_tasks",
        False,
    ),
}
FIXED_WORDS = {*_WORDS, "signal", "open-mode", "dependency"}
_SIGNAL = re.compile(
    rf"[RB]{{0,2}}:?(0*[1-9][0-9]{{0,3}}|(SIG)?(HUP|INT|QUIT|ABRT|KILL|ALRM|TERM|CHLD|USR1|USR2|PIPE|URG|CONT|STOP|TSTP"
    rf"|TTIN|TTOU|XCPU))(@({_N})?)?",
    re.I,
)
_DEPENDS = {"after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "expand"}
# GRES that are not GPUs, although the user meant GPUs: the site would have to name its own GRES so.
_NO_GRES = re.compile(r"(gpus|GPUs?)(:.*)?|gpu\d+|\d+|gpu:-\d+", re.A)


def problem_of_value(given: Given) -> str:
    """Return the problem that sbatch or slurmctld finds in a value; empty if there is none."""
    name, value = given.name, given.value
    if name in ("time", "time-min") and minutes(value) is None:
        return f"--{name}={value} is not a time: write minutes, hours:minutes:seconds or days-hours"
    if name in ("mem", "mem-per-cpu", "mem-per-gpu") and not _MEMORY.fullmatch(value):
        return f"--{name}={value} is not a size: write a whole number and K, M, G or T"
    if name == "array":
        return _array(value)
    if name in _WORDS and value:
        return _words(name, value)
    if name == "signal" and not _SIGNAL.fullmatch(value):
        return f"--signal={value}: write the signal and the seconds before the end: B:USR1@300"
    if name == "open-mode" and value[:1].lower() not in ("a", "t"):
        return f"--open-mode={value} is neither append nor truncate"
    if name == "dependency":
        return _dependency(value)
    if name == "gres" and (wrong := next(filter(_NO_GRES.fullmatch, value.split(",")), "")):
        return f"--gres={wrong}: GPUs are gpu:COUNT or gpu:TYPE:COUNT"
    return ""


def _words(name: str, value: str) -> str:
    known, all_of_them = _WORDS[name]
    words = [word for word in value.lower().split(",") if word]
    good = [word in known.split() for word in words]
    if all(good) if all_of_them else any(good):
        return ""
    return f"--{name}={value} is none that sbatch knows: {', '.join(known.split()[:6])}"


def _dependency(value: str) -> str:
    for term in re.split("[,?]", value):
        kind, colon, _ = term.partition(":")
        if term.isdigit() or term.lower() == "singleton" or (colon and kind.lower() in _DEPENDS):
            continue
        return f"--dependency={value}: write afterok:JOB, afterany:JOB, singleton"
    return ""


def minutes(value: str) -> float | None:
    """Return the minutes of a time; infinity without a limit, None for a time that sbatch
    refuses.
    """
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
