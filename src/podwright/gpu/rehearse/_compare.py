"""Compares two answers of Slurm to one submission: what a user would notice. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from podwright.slurm.twin import Granted, GrantedNode, Refused, Submission, Waits

_Text = Callable[[GrantedNode], str]
Answer = Granted | Waits | Refused
#: The twins are asked one after the other, so start times are accurate to about a minute.
_SAME_TIME = timedelta(minutes=2)
Kind = Literal[
    "refused",
    "accepted",
    "waits",
    "starts",
    "later",
    "sooner",
    "reason",
    "nodes",
    "GPUs",
    "CPUs",
    "memory",
    "limits",
]


@dataclass(frozen=True)
class AnswerPair:
    """A submission, its jobs (numbers, or paths of scripts), and Slurm's answers before and after
    the change.
    """

    jobs: tuple[str, ...]
    submission: Submission
    before: Answer
    after: Answer


@dataclass(frozen=True)
class AnswerChange:
    """kind: what differs. `refused` and `waits` are new with the change, `accepted` and `starts`
    end with it; `later` and `sooner` are other times at which Slurm expects a waiting job to start;
    `reason` is another reason to wait or to refuse; `limits` are the partition and
    the time limit; the others are what the job gets. reason: in Slurm's words where there are."""

    kind: Kind
    jobs: tuple[str, ...]
    options: str
    before: str
    after: str
    reason: str


def differences(cases: Iterable[AnswerPair]) -> list[AnswerChange]:
    """Each aspect in which two answers to a submission differ; empty where they are alike."""
    return [difference for case in cases for difference in _of_case(case)]


def _of_case(case: AnswerPair) -> Iterator[AnswerChange]:
    before, after = case.before, case.after
    options = " ".join((case.submission.command, *case.submission.options))

    def difference(kind: Kind, first: str, second: str, reason: str = "") -> AnswerChange:
        return AnswerChange(kind, case.jobs, options, first, second, reason or second)

    if isinstance(before, Granted) and isinstance(after, Granted):
        for kind, first, second in _granted(before, after):
            yield difference(kind, first, second, f"{kind}: {first} becomes {second}")
        return
    words = (_words(before), _words(after))
    if type(before) is type(after):
        if words[0] != words[1]:
            yield difference("reason", *words)
        elif isinstance(before, Waits) and isinstance(after, Waits):
            yield from _times(before, after, difference)
        return
    yield difference(_change(before, after), *words, reason=_slurms_reason(before, after))


def _times(
    before: Waits, after: Waits, difference: Callable[[Kind, str, str], AnswerChange]
) -> Iterator[AnswerChange]:
    """Return the difference of the times at which Slurm expects the job to start."""
    first, second = _start_time(before), _start_time(after)
    if first is None or second is None or abs(second - first) < _SAME_TIME:
        return
    kind: Kind = "later" if second > first else "sooner"
    yield difference(kind, f"starts at {first}", f"starts at {second}")


def _start_time(answer: Waits) -> datetime | None:
    match = re.search(r"\bStartTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", answer.record)
    return datetime.fromisoformat(match[1]) if match else None


def _change(before: Answer, after: Answer) -> Kind:
    if isinstance(after, Refused):
        return "refused"
    if isinstance(before, Refused):
        return "accepted"
    return "waits" if isinstance(after, Waits) else "starts"


def _slurms_reason(before: Answer, after: Answer) -> str:
    """Return why it is refused or waits after the change, or before it if it starts after the
    change.
    """
    return _words(before) if isinstance(after, Granted) else _words(after)


def _words(answer: Answer) -> str:
    if isinstance(answer, Refused):
        return re.sub(r"^\w+: (?:error: )?", "", answer.message)
    if isinstance(answer, Waits):
        return answer.reason
    return f"starts on {_names(answer)}"


def _names(answer: Granted) -> str:
    return ",".join(sorted(node.name for node in answer.nodes))


def _granted(before: Granted, after: Granted) -> Iterator[tuple[Kind, str, str]]:
    # On different nodes the indices of the GPUs mean nothing, but their number does.
    same = _names(before) == _names(after)
    per_node, gpus = (_by_node, _gpus) if same else (_counts, _gpu_count)
    rows: tuple[tuple[Kind, str, str], ...] = (
        ("nodes", _names(before), _names(after)),
        ("GPUs", per_node(before, gpus), per_node(after, gpus)),
        ("CPUs", per_node(before, _cpu_count), per_node(after, _cpu_count)),
        ("memory", per_node(before, _memory), per_node(after, _memory)),
        ("limits", _limits(before), _limits(after)),
    )
    yield from (row for row in rows if row[1] != row[2])


def _gpus(node: GrantedNode) -> str:
    shares = ",".join(f"{gpu}/{count}" for gpu, count in sorted(node.shares.items()))
    numbers = ",".join(map(str, node.gpus))
    return " ".join(filter(None, (numbers, shares))) or "none"


def _gpu_count(node: GrantedNode) -> str:
    shares = sum(node.shares.values())
    return f"{len(node.gpus)} GPUs" + (f" {shares} shares" if shares else "")


def _cpu_count(node: GrantedNode) -> str:
    return f"{len(node.cpus)} CPUs"


def _memory(node: GrantedNode) -> str:
    return f"{node.memory} MiB"


def _by_node(answer: Granted, text: _Text) -> str:
    nodes = sorted(answer.nodes, key=lambda node: node.name)
    return "; ".join(f"{node.name} {text(node)}" for node in nodes)


def _counts(answer: Granted, text: _Text) -> str:
    return "; ".join(sorted(text(node) for node in answer.nodes))


def _limits(answer: Granted) -> str:
    limit = re.search(r"\bTimeLimit=(\S+)", answer.record)
    return f"partition {answer.partition}, time limit {limit[1] if limit else 'not known'}"
