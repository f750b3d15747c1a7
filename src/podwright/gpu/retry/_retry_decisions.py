"""Decides why a job's command failed, and what follows. Without effects.

The question is whether a node was at fault: yes, no (then it was the program), or not known. A
Python traceback alone proves neither: memory errors of a GPU and faults of NCCL arrive as
tracebacks. So a program is blamed only for errors of the program's text, in an output that names no
device, network or file system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from podwright.gpu.retry._failure_records import FailureRecord, first_failures
from podwright.ground.judgement import Judgement, Says

_TEXT_ERROR: Final = re.compile(
    r"^(?:\S*\]: *|\d+: *)?"
    r"((?:SyntaxError|IndentationError|TabError|NameError|UnboundLocalError|TypeError): .*)",
    re.M,
)
_OUT_OF_MEMORY: Final = re.compile(r"^.*[Dd]etected \d+ oom.?kill event.*", re.M)
#: What srun says of a task that failed: the first of these lines is about the first task.
_SRUN_WORD: Final = re.compile(r"^srun: error: (\S+: tasks? [\d,-]+): (.*)", re.M)
#: Words after which an error of the program's text may be what a fault elsewhere led to.
_OTHER_FAULTS: Final = re.compile(
    r"CUDA|NCCL|\bHIP\b|\bROCm|\bXid\b|\bECC\b|cuBLAS|cuDNN|RuntimeError|Bus error|"
    r"Input/output error|Stale file handle|No space left|Connection (?:reset|refused|closed)|"
    r"timed out|Node failure|NODE FAIL|unhealthy",
    re.I,
)


class NodeWord(NamedTuple):
    """What is known of a node: fit YES or NO, or NOT_KNOWN. because, source: as in `Judgement`."""

    node: str
    fit: Says
    because: str
    source: str


class JobFault(NamedTuple):
    """at_fault: was a node at fault? nodes: those at fault."""

    at_fault: Judgement
    nodes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The cause in a word or two."""
        return {Says.YES: "hardware", Says.NO: "program"}.get(self.at_fault.says, "not known")


class Stop(NamedTuple):
    """The job ends with the command's exit code."""

    because: str


class Again(NamedTuple):
    """The job starts again. without: nodes that it is not to get."""

    without: tuple[str, ...]
    because: str


def find_cause(
    code: int,
    words: Sequence[NodeWord],
    output: str | None,
    failures: Iterable[FailureRecord] = (),
) -> JobFault:
    """Why a command failed. words: about the job's nodes. output: its end, or None: unreadable.

    failures: what the command's processes recorded of their ends. The first of them counts, since
    the others may have failed because of it.
    """
    ill = [word for word in words if word.fit is Says.NO]
    if ill:
        because = "; ".join(f"{word.node}: {word.because}" for word in ill)
        judgement = Judgement(says=Says.YES, because=because, source=ill[0].source)
        return JobFault(judgement, tuple(dict.fromkeys(word.node for word in ill)))
    text, first = output or "", first_failures(failures)
    if match := _OUT_OF_MEMORY.search(text):
        because = f"it needs more memory than the job has: {match[0].strip()}"
        return JobFault(Judgement(says=Says.NO, because=because, source="Slurm"))
    said = [record.text for record in first] or [text]
    errors = [_TEXT_ERROR.search(each) for each in said if not _OTHER_FAULTS.search(each)]
    if errors and errors[0] and len(errors) == len(said) and all(errors):
        source = first[0].source if first else "Python"
        return JobFault(Judgement(says=Says.NO, because=errors[0][1].strip(), source=source))
    because = f"it ended with {code}, and no node and no word of its output says why"
    if first:
        nodes = ", ".join(dict.fromkeys(record.node for record in first))
        message = first[0].message.strip().partition("\n")[0]
        because = f"it ended with {code}, first on {nodes}: {message}"
    elif match := _SRUN_WORD.search(text):
        because = f"it ended with {code}; srun says of {match[1]}: {match[2]}"
    unseen = () if output is not None else ("the command's output, which is no file",)
    doubts = [f"{word.node}: {word.because}" for word in words if word.fit is Says.NOT_KNOWN]
    left_out = (*unseen, *doubts)
    return JobFault(Judgement(says=Says.NOT_KNOWN, because=because, left_out=left_out))


def at_start(
    restarts: int, limit: int, nodes: Sequence[str], bad: Sequence[str]
) -> Stop | Again | None:
    """What follows before the command is started; None: start it.

    restarts: Slurm's count. bad: nodes that were at fault in earlier attempts of this job.
    """
    if restarts > limit:
        return Stop(f"Slurm has started this job {restarts + 1} times, and --max is {limit}")
    held = tuple(node for node in nodes if node in bad)
    if held and restarts < limit:
        return Again(tuple(bad), f"the job has got {', '.join(held)} again")
    return None


def after_failure(
    cause: JobFault, restarts: int, limit: int, nodes: Sequence[str], usable_others: int
) -> Stop | Again:
    """What follows a failure.

    usable_others: nodes of the partition that the job does not have and could get.
    """
    if cause.at_fault.says is Says.NO:
        return Stop("the program failed, and would fail again")
    if restarts >= limit:
        return Stop(f"this was the last of {limit + 1} attempts (--max {limit})")
    if cause.at_fault.says is Says.YES:
        return Again(cause.nodes, cause.at_fault.because)
    # Nobody is blamed. Other nodes are worth a try if there are enough of them.
    without = tuple(nodes) if usable_others >= len(nodes) else ()
    return Again(without, "the cause is not known")
