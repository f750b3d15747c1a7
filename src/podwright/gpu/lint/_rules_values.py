"""Rules about values of #SBATCH lines that sbatch accepts but that do something unintended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._option_values import minutes
from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.slurm.site.releases import OLDEST_RELEASE, release_of

_EVIDENCE_TEST = "tests/outer/gpu/test_lint_shown.py"
_FILE_OPTIONS = ("output", "error", "input")
_FILENAME_CODES = {
    "SLURM_JOB_ID": "%j", "SLURM_JOBID": "%j", "SLURM_ARRAY_JOB_ID": "%A",
    "SLURM_ARRAY_TASK_ID": "%a", "SLURM_JOB_NAME": "%x", "USER": "%u",
}  # fmt: skip
_MINUTES_PER_HOUR = 60
UNKNOWN_PARTITION = "unknown-partition"


@rule(
    "not-expanded",
    "mistake",
    "a $VARIABLE, $(command) or ~ in a #SBATCH line: no shell reads these lines",
    f"{_EVIDENCE_TEST}::test_variables_in_directives_stay_as_they_are",
    "writes Slurm's own pattern (%j, %a, %x, %u) in names of files",
)
def not_expanded(lint_case: Case) -> Iterator[Found]:
    for line_number, option in lint_case.script.directives:
        has_tilde = option.name in (*_FILE_OPTIONS, "chdir") and option.value.startswith("~")
        if option.name in ("comment", "extra", "wrap") or not (has_tilde or "$" in option.value):
            continue
        if not has_tilde and not re.search(r"\$(\{?\w|\()", option.value):
            continue
        line_text = lint_case.script.at(line_number)
        corrected_line = line_text
        if option.name in _FILE_OPTIONS and not has_tilde:
            for name, pattern in _FILENAME_CODES.items():
                corrected_line = re.sub(
                    rf"\$(\{{{name}\}}|{name}\b)",
                    pattern,
                    corrected_line,
                )
        is_corrected = (
            corrected_line != line_text
            and "$" not in corrected_line.partition("#SBATCH")[2].partition(" #")[0]
        )
        reason = (
            f"no shell reads this line: --{option.name} is taken as {option.value!r}, as it stands"
        )
        yield Found(line_number, reason, corrected_line if is_corrected else "", sure=is_corrected)


@rule(
    "given-twice",
    "mistake",
    "an option given twice with different values: only the last counts",
    f"{_EVIDENCE_TEST}::test_the_last_of_two_equal_options_counts",
)
def given_twice(lint_case: Case) -> Iterator[Found]:
    if not lint_case.script.settled:
        return
    earlier_options: dict[str, tuple[int, str]] = {}
    last_mail_type_wins = release_of(lint_case.site.version or OLDEST_RELEASE).last_mail_type_wins
    for line_number, option in lint_case.script.directives:
        option_name = "ntasks-per-node" if option.name == "tasks-per-node" else option.name
        if option_name in ("gres-flags", "hint", "signal") or (
            option_name == "mail-type" and not last_mail_type_wins
        ):
            continue
        if option_name in earlier_options and _values_differ(
            option_name, earlier_options[option_name][1], option.value
        ):
            earlier_line, earlier_value = earlier_options[option_name]
            reason = (
                f"--{option.name} is given again in line {line_number} ({option.value}): "
                f"this one ({earlier_value}) does nothing"
            )
            yield Found(earlier_line, reason)
        earlier_options[option_name] = (line_number, option.value)


def _values_differ(option_name: str, first_value: str, other_value: str) -> bool:
    return (
        minutes(first_value) != minutes(other_value)
        if option_name == "time"
        else first_value != other_value
    )


@rule(
    "array-in-one-file",
    "better",
    "all tasks of an array write into one file",
    "https://slurm.schedmd.com/sbatch.html#SECTION_FILENAME-PATTERN",
)
def array_in_one_file(lint_case: Case) -> Iterator[Found]:
    if not lint_case.script.option("array"):
        return
    for line_number, option in lint_case.script.directives:
        name = option.value
        is_output_file = option.name in ("output", "error") and name != "/dev/null"
        if is_output_file and not re.search(r"%\d*[ajJNn]", name):
            yield Found(
                line_number, "all tasks of the array write into this file: put %a into its name"
            )


@rule(
    "array-unlimited",
    "better",
    "no number behind the % of --array: it limits nothing, and all tasks may run at once",
    "tests/outer/gpu/test_lint_values.py::test_a_limit_of_an_array_that_is_no_number_is_none",
)
def array_unlimited(lint_case: Case) -> Iterator[Found]:
    for number, option in lint_case.script.directives:
        # The first % counts, wherever it stands.
        _, sign, limit = option.value.partition("%")
        if option.name == "array" and sign and not re.match(r"0*[1-9]", limit):
            reason = f"--array={option.value} limits nothing: write %4 for four tasks at a time"
            yield Found(number, reason)


@rule(
    "minutes-or-hours",
    "better",
    "24:00 is 24 minutes, not hours",
    "https://slurm.schedmd.com/sbatch.html#OPT_time",
)
def minutes_or_hours(lint_case: Case) -> Iterator[Found]:
    for number, option in lint_case.script.directives:
        if option.name == "time" and re.fullmatch(r"(12|24|48|72|96|120):00", option.value):
            reason = (
                f"--time={option.value} is {option.value[:-3]} minutes: {option.value}:00 for hours"
            )
            yield Found(number, reason)


@rule(
    UNKNOWN_PARTITION,
    "mistake",
    "the site's Slurm has no partition of this name, and refuses the job",
    f"{_EVIDENCE_TEST}::test_a_time_over_the_limit_of_the_partition",
)
def unknown_partition(lint_case: Case) -> Iterator[Found]:
    option, partitions = lint_case.script.option("partition"), lint_case.site.partitions
    if not option or not partitions or "$" in option.value:
        return
    if not any(name in partitions for name in option.value.split(",")):
        known_partitions = ", ".join(sorted(partitions))
        yield Found(
            lint_case.script.line_of("partition"),
            f"there is no partition {option.value}; have: {known_partitions}",
        )


@rule(
    "over-the-limit",
    "mistake",
    "more time or nodes than the partition allows; the job is refused, or waits for ever",
    f"{_EVIDENCE_TEST}::test_a_time_over_the_limit_of_the_partition",
)
def over_the_limit(lint_case: Case) -> Iterator[Found]:
    script, partitions = lint_case.script, lint_case.site.partitions
    partition_option = script.option("partition")
    partition_names = (
        partition_option.value.split(",")
        if partition_option
        else [lint_case.site.default_partition]
    )
    partition_limits = [partitions[name] for name in partition_names if name in partitions]
    if not partition_limits or len(partition_limits) != len(partition_names):
        return
    time_option = script.option("time")
    wanted_minutes = minutes(time_option.value) if time_option else None
    longest_minutes = max(partition_limit.minutes for partition_limit in partition_limits)
    if wanted_minutes is not None and wanted_minutes > longest_minutes:
        reason = (
            f"partition {','.join(partition_names)} allows {_time_limit_text(longest_minutes)}: "
            "this job "
            "never starts"
        )
        yield Found(script.line_of("time"), reason)
    min_nodes = script.request.min_nodes
    if min_nodes and all(
        partition_limit.nodes is not None and min_nodes > partition_limit.nodes
        for partition_limit in partition_limits
    ):
        allowed_nodes = max(partition_limit.nodes or 0 for partition_limit in partition_limits)
        reason = (
            f"partition {','.join(partition_names)} allows {allowed_nodes} nodes: this job never "
            "starts"
        )
        yield Found(script.line_of("nodes"), reason)


def _time_limit_text(limit_minutes: float) -> str:
    hours, rest_minutes = divmod(round(limit_minutes), _MINUTES_PER_HOUR)
    return f"{hours}:{rest_minutes:02}:00"
