"""`sbatch --test-only`: when the site's own slurmctld would start a job, or why it refuses it.

The command submits nothing. It does not name GPUs or CPUs, and it does not look at time limits of
partitions, so these are compared here.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._request_details import read_details
from podwright.gpu.requests._submitted_options import site_options
from podwright.gpu.requests._units import minutes
from podwright.slurm.reader import SlurmPartitionRecord, read_partitions
from podwright.slurm.site.command_result import CommandResult

Run = Callable[[Sequence[str]], CommandResult]
#: 26.05.5 was observed to print an extra letter after the time.
_START_LINE_PATTERN = re.compile(
    r"[Jj]ob \d+ to start at (\S+)(?: \w)? using \d+ processors on node"
)
_REFUSAL_LINE_PATTERN = re.compile(
    r"(?:allocation failure|Batch job submission failed|error): (.+)"
)
_NO_CONTROLLER_PATTERN = re.compile(
    r"(?i)unable to contact|configuration source|timed out|connection refused"
)
_COMMAND_TIMEOUT_S = 20.0  # seconds


class StartEstimate(NamedTuple):
    """starts: the time, as Slurm writes it; empty if the job is refused, for the reason `reason`.

    text: the output of the command.
    """

    starts: str
    reason: str
    text: str


def run_command(argv: Sequence[str]) -> CommandResult:
    """Return the result of a command; code 127 if it cannot be run or does not end in time."""
    try:
        completed = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandResult(127, "", str(error))
    return CommandResult(completed.returncode, completed.stdout, completed.stderr)


def ask_test_only(request: SlurmRequest, run_tool: Run = run_command) -> StartEstimate | None:
    """Return the site's answer; None if the command is missing or gives no answer.

    salloc has no such option, so sbatch is asked in its place.
    """
    command, program = ("srun", ["true"]) if request.command == "srun" else ("sbatch", [])
    script_option = [] if program else ["--wrap=true"]
    options, _ = site_options(request)
    command_result = run_tool([command, "--test-only", *script_option, *options, *program])
    text = (command_result.err + command_result.out).strip()
    if start_match := _START_LINE_PATTERN.search(text):
        return StartEstimate(start_match[1], "", text)
    reasons = _REFUSAL_LINE_PATTERN.findall(text)
    if command_result.code in (0, 127) or not reasons or _is_unreachable(text):
        return None
    return StartEstimate("", reasons[-1].strip(), text)


def beyond_time_limit(request: SlurmRequest, partitions_text: str) -> str | None:
    """Return why the job would wait for ever for its time limit; empty if it would not, None if
    that is not known. partitions_text: what `scontrol --oneliner show partition` prints."""
    details = read_details(request.given)
    if details.time is None:
        return ""
    partitions = read_partitions(partitions_text)
    chosen = [
        partition
        for partition in partitions
        if (partition.name in details.partitions if details.partitions else partition.default)
    ]
    if not chosen:
        return None
    limits = [_limit_minutes(partition) for partition in chosen]
    if any(limit is None or 0 < details.time <= limit for limit in limits):
        return ""
    asked_time = f"{details.time} minutes" if details.time else "no time limit"
    return (
        f"it asks for {asked_time}, and partition {chosen[0].name} allows {limits[0]} minutes "
        "(PartitionTimeLimit)"
    )


def _limit_minutes(partition: SlurmPartitionRecord) -> int | None:
    limit = partition.max_time
    return None if limit in ("UNLIMITED", "INFINITE", "NONE") else minutes(limit, "time")


def _is_unreachable(output_text: str) -> bool:
    """Whether the command failed because no controller answered, which says nothing about the
    request."""
    return bool(_NO_CONTROLLER_PATTERN.search(output_text))
