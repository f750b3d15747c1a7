"""Values of sbatch's options that have a form of their own: times, memory, arrays.

The checks follow Slurm's source. tests/outer/gpu/test_lint_values.py compares them with real
sbatch.
"""

from __future__ import annotations

import re

from podwright.gpu.requests import Given
from podwright.slurm.site.time_and_memory import time_seconds

_DIGITS = r"[0-9]{1,18}"
_MEMORY_PATTERN = re.compile(rf"{_DIGITS}([kmgt]b?)?", re.I)
_ARRAY_PATTERN = re.compile(rf"\[?{_DIGITS}\]?(-{_DIGITS}\]?(:{_DIGITS}\]?)?)?(%.*)?")

# Options whose words are all from a list, in small or capital letters, and whether sbatch requires
# all words of a value to be known, or only one.
_ALLOWED_WORDS: dict[str, tuple[str, bool]] = {
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
FIXED_VALUE_OPTIONS = {*_ALLOWED_WORDS, "signal", "open-mode", "dependency"}
_SIGNAL_PATTERN = re.compile(
    rf"[RB]{{0,2}}:?(0*[1-9][0-9]{{0,3}}|(SIG)?(HUP|INT|QUIT|ABRT|KILL|ALRM|TERM|CHLD|USR1|USR2|PIPE|URG|CONT|STOP|TSTP"
    rf"|TTIN|TTOU|XCPU))(@({_DIGITS})?)?",
    re.I,
)
_DEPENDENCY_TYPES = {
    "after",
    "afterany",
    "afterok",
    "afternotok",
    "aftercorr",
    "afterburstbuffer",
    "expand",
}
# GRES that are not GPUs, although the user meant GPUs: the site would have to name its own GRES so.
_WRONG_GPU_GRES_PATTERN = re.compile(r"(gpus|GPUs?)(:.*)?|gpu\d+|\d+|gpu:-\d+", re.A)


def option_value_problem(option: Given) -> str:
    """Return the problem that sbatch or slurmctld finds in a value; empty if there is none."""
    option_name, option_value = option.name, option.value
    if option_name in ("time", "time-min") and minutes(option_value) is None:
        return (
            f"--{option_name}={option_value} is not a time: write minutes, hours:minutes:seconds "
            "or days-hours"
        )
    if option_name in ("mem", "mem-per-cpu", "mem-per-gpu") and not _MEMORY_PATTERN.fullmatch(
        option_value
    ):
        return (
            f"--{option_name}={option_value} is not a size: write a whole number and K, M, G or T"
        )
    if option_name == "array":
        return _array_problem(option_value)
    if option_name in _ALLOWED_WORDS and option_value:
        return _word_problem(option_name, option_value)
    if option_name == "signal" and not _SIGNAL_PATTERN.fullmatch(option_value):
        return (
            f"--signal={option_value}: write the signal and the seconds before the end: B:USR1@300"
        )
    if option_name == "open-mode" and option_value[:1].lower() not in ("a", "t"):
        return f"--open-mode={option_value} is neither append nor truncate"
    if option_name == "dependency":
        return _dependency_problem(option_value)
    if option_name == "gres" and (
        wrong_gres := next(filter(_WRONG_GPU_GRES_PATTERN.fullmatch, option_value.split(",")), "")
    ):
        return f"--gres={wrong_gres}: GPUs are gpu:COUNT or gpu:TYPE:COUNT"
    return ""


def _word_problem(option_name: str, option_value: str) -> str:
    allowed_words, must_all_match = _ALLOWED_WORDS[option_name]
    words = [word for word in option_value.lower().split(",") if word]
    words_allowed = [word in allowed_words.split() for word in words]
    if all(words_allowed) if must_all_match else any(words_allowed):
        return ""
    return (
        f"--{option_name}={option_value} is none that sbatch knows: "
        f"{', '.join(allowed_words.split()[:6])}"
    )


def _dependency_problem(dependency_value: str) -> str:
    for term in re.split("[,?]", dependency_value):
        dependency_type, colon, _ = term.partition(":")
        if (
            term.isdigit()
            or term.lower() == "singleton"
            or (colon and dependency_type.lower() in _DEPENDENCY_TYPES)
        ):
            continue
        return f"--dependency={dependency_value}: write afterok:JOB, afterany:JOB, singleton"
    return ""


def minutes(time_text: str) -> float | None:
    """Return the minutes of a time; infinity without a limit, None for a time that sbatch
    refuses.
    """
    if "." in time_text:
        return None
    try:
        return time_seconds(time_text) / 60
    except ValueError:
        return None


def _array_problem(array_value: str) -> str:
    for array_part in array_value.split(","):
        if not array_part:
            continue
        if re.fullmatch(r"%\d*|\[|\]", array_part):
            continue
        if not _ARRAY_PATTERN.fullmatch(array_part):
            return f"--array={array_value}: write 0-9, 1,3,5 or 0-9:2, and %4 for four at a time"
        numbers = [int(digits) for digits in re.findall(r"\d+", array_part.partition("%")[0])]
        if len(numbers) > 1 and numbers[1] < numbers[0]:
            return f"--array={array_value} runs backwards"
        if len(numbers) > 2 and numbers[2] == 0:
            return f"--array={array_value} has steps of nothing"
    return ""
