"""Rules about values of #SBATCH lines that sbatch accepts but that do something unintended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._option_values import minutes
from podwright.gpu.lint._rule import Case, Found, rule
from podwright.slurm.site.releases import OLDEST, release_of

_SHOWN_BY = "tests/outer/gpu/test_lint_shown.py"
_FILES = ("output", "error", "input")
_PATTERNS = {
    "SLURM_JOB_ID": "%j", "SLURM_JOBID": "%j", "SLURM_ARRAY_JOB_ID": "%A",
    "SLURM_ARRAY_TASK_ID": "%a", "SLURM_JOB_NAME": "%x", "USER": "%u",
}  # fmt: skip
_ROUND_HOURS = 60
UNKNOWN_PARTITION = "unknown-partition"


@rule(
    "not-expanded",
    "mistake",
    "a $VARIABLE, $(command) or ~ in a #SBATCH line: no shell reads these lines",
    f"{_SHOWN_BY}::test_variables_in_directives_stay_as_they_are",
    "writes Slurm's own pattern (%j, %a, %x, %u) in names of files",
)
def not_expanded(case: Case) -> Iterator[Found]:
    for number, given in case.script.directives:
        tilde = given.name in (*_FILES, "chdir") and given.value.startswith("~")
        if given.name in ("comment", "extra", "wrap") or not (tilde or "$" in given.value):
            continue
        if not tilde and not re.search(r"\$(\{?\w|\()", given.value):
            continue
        text = case.script.at(number)
        right = text
        if given.name in _FILES and not tilde:
            for name, pattern in _PATTERNS.items():
                right = re.sub(rf"\$(\{{{name}\}}|{name}\b)", pattern, right)
        changed = right != text and "$" not in right.partition("#SBATCH")[2].partition(" #")[0]
        reason = (
            f"no shell reads this line: --{given.name} is taken as {given.value!r}, as it stands"
        )
        yield Found(number, reason, right if changed else "", sure=changed)


@rule(
    "given-twice",
    "mistake",
    "an option given twice with different values: only the last counts",
    f"{_SHOWN_BY}::test_the_last_of_two_equal_options_counts",
)
def given_twice(case: Case) -> Iterator[Found]:
    if not case.script.settled:
        return
    seen: dict[str, tuple[int, str]] = {}
    last = release_of(case.site.version or OLDEST).last_mail_type_wins
    for number, given in case.script.directives:
        name = "ntasks-per-node" if given.name == "tasks-per-node" else given.name
        if name in ("gres-flags", "hint", "signal") or (name == "mail-type" and not last):
            continue
        if name in seen and _differ(name, seen[name][1], given.value):
            line, value = seen[name]
            reason = (
                f"--{given.name} is given again in line {number} ({given.value}): "
                f"this one ({value}) does nothing"
            )
            yield Found(line, reason)
        seen[name] = (number, given.value)


def _differ(name: str, first: str, other: str) -> bool:
    return minutes(first) != minutes(other) if name == "time" else first != other


@rule(
    "array-in-one-file",
    "better",
    "all tasks of an array write into one file",
    "https://slurm.schedmd.com/sbatch.html#SECTION_FILENAME-PATTERN",
)
def array_in_one_file(case: Case) -> Iterator[Found]:
    if not case.script.option("array"):
        return
    for number, given in case.script.directives:
        name = given.value
        shared = given.name in ("output", "error") and name != "/dev/null"
        if shared and not re.search(r"%\d*[ajJNn]", name):
            yield Found(number, "all tasks of the array write into this file: put %a into its name")


@rule(
    "array-unlimited",
    "better",
    "no number behind the % of --array: it limits nothing, and all tasks may run at once",
    "tests/outer/gpu/test_lint_values.py::test_a_limit_of_an_array_that_is_no_number_is_none",
)
def array_unlimited(case: Case) -> Iterator[Found]:
    for number, given in case.script.directives:
        _, percent, limit = given.value.partition("%")  # the first one counts, wherever it stands
        if given.name == "array" and percent and not re.match(r"0*[1-9]", limit):
            reason = f"--array={given.value} limits nothing: write %4 for four tasks at a time"
            yield Found(number, reason)


@rule(
    "minutes-or-hours",
    "better",
    "24:00 is 24 minutes, not hours",
    "https://slurm.schedmd.com/sbatch.html#OPT_time",
)
def minutes_or_hours(case: Case) -> Iterator[Found]:
    for number, given in case.script.directives:
        if given.name == "time" and re.fullmatch(r"(12|24|48|72|96|120):00", given.value):
            reason = (
                f"--time={given.value} is {given.value[:-3]} minutes: {given.value}:00 for hours"
            )
            yield Found(number, reason)


@rule(
    UNKNOWN_PARTITION,
    "mistake",
    "the site's Slurm has no partition of this name, and refuses the job",
    f"{_SHOWN_BY}::test_a_time_over_the_limit_of_the_partition",
)
def unknown_partition(case: Case) -> Iterator[Found]:
    requested, partitions = case.script.option("partition"), case.site.partitions
    if not requested or not partitions or "$" in requested.value:
        return
    if not any(name in partitions for name in requested.value.split(",")):
        have = ", ".join(sorted(partitions))
        yield Found(
            case.script.line_of("partition"),
            f"there is no partition {requested.value}; have: {have}",
        )


@rule(
    "over-the-limit",
    "mistake",
    "more time or nodes than the partition allows; the job is refused, or waits for ever",
    f"{_SHOWN_BY}::test_a_time_over_the_limit_of_the_partition",
)
def over_the_limit(case: Case) -> Iterator[Found]:
    script, partitions = case.script, case.site.partitions
    requested = script.option("partition")
    names = requested.value.split(",") if requested else [case.site.default_partition]
    limits = [partitions[name] for name in names if name in partitions]
    if not limits or len(limits) != len(names):
        return
    time = script.option("time")
    wanted = minutes(time.value) if time else None
    longest_limit = max(limit.minutes for limit in limits)
    if wanted is not None and wanted > longest_limit:
        reason = (
            f"partition {','.join(names)} allows {_words(longest_limit)}: this job never starts"
        )
        yield Found(script.line_of("time"), reason)
    nodes = script.request.min_nodes
    if nodes and all(limit.nodes is not None and nodes > limit.nodes for limit in limits):
        allowed = max(limit.nodes or 0 for limit in limits)
        reason = f"partition {','.join(names)} allows {allowed} nodes: this job never starts"
        yield Found(script.line_of("nodes"), reason)


def _words(hours: float) -> str:
    whole_hours, rest = divmod(round(hours), _ROUND_HOURS)
    return f"{whole_hours}:{rest:02}:00"
