"""`sbatch --test-only`: when the site's own slurmctld would start a job, or why it refuses it.

The command submits nothing. It does not name GPUs or CPUs, and it does not look at time limits of
partitions.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from typing import NamedTuple

from podwright.gpu.requests._request import SlurmRequest
from podwright.gpu.requests._submission import deciding_options
from podwright.slurm.site.command_result import CommandResult

Run = Callable[[Sequence[str]], CommandResult]
#: 26.05.5 was observed to print an extra letter after the time.
_STARTS = re.compile(r"[Jj]ob \d+ to start at (\S+)(?: \w)? using \d+ processors on node")
_ENDS = re.compile(r"(?:allocation failure|Batch job submission failed|error): (.+)")
_NO_CONTROLLER = re.compile(
    r"(?i)unable to contact|configuration source|timed out|connection refused"
)
_LIMIT = 20.0  # seconds


class StartEstimate(NamedTuple):
    """starts: the time, as Slurm writes it; empty if the job is refused, for the reason `reason`.

    text: the output of the command.
    """

    starts: str
    reason: str
    text: str


def run_command(words: Sequence[str]) -> CommandResult:
    """Return the result of a command; code 127 if it cannot be run or does not end in time."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandResult(127, "", str(error))
    return CommandResult(done.returncode, done.stdout, done.stderr)


def ask_test_only(request: SlurmRequest, run: Run = run_command) -> StartEstimate | None:
    """Return the site's answer; None if the command is missing or gives no answer.

    salloc has no such option, so sbatch is asked in its place.
    """
    command, program = ("srun", ["true"]) if request.command == "srun" else ("sbatch", [])
    script = [] if program else ["--wrap=true"]
    done = run([command, "--test-only", *script, *deciding_options(request), *program])
    text = (done.err + done.out).strip()
    if match := _STARTS.search(text):
        return StartEstimate(match[1], "", text)
    reasons = _ENDS.findall(text)
    if done.code in (0, 127) or not reasons or _unreachable(text):
        return None
    return StartEstimate("", reasons[-1].strip(), text)


def _unreachable(text: str) -> bool:
    """Whether the command failed because no controller answered, which says nothing about the
    request."""
    return bool(_NO_CONTROLLER.search(text))
