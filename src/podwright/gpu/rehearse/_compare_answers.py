"""Compares two answers of Slurm to one submission: what a user would notice. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from podwright.slurm.twin import Granted, GrantedNode, Refused, Submission, Waits

_NodeText = Callable[[GrantedNode], str]
Answer = Granted | Waits | Refused
#: The twins are asked one after the other, so start times are accurate to about a minute.
_MIN_START_CHANGE = timedelta(minutes=2)
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


def same_answers(first: AnswerPair, second: AnswerPair) -> bool:
    """Whether two rounds of questions had the same answers, as far as a user would notice."""
    return not differences(
        AnswerPair(first.jobs, first.submission, *answers)
        for answers in ((first.before, second.before), (first.after, second.after))
    )


def may_move(answer_pair: AnswerPair) -> bool:
    """Whether answers differ in what also depends on when Slurm looked: that a job waits, and which
    nodes and GPUs it gets. Refusals, memory and limits are the same each time."""
    changes = differences([answer_pair])
    waits = isinstance(answer_pair.before, Waits) or isinstance(answer_pair.after, Waits)
    return bool(changes) and (
        waits or any(change.kind in ("nodes", "GPUs", "CPUs") for change in changes)
    )


def differences(answer_pairs: Iterable[AnswerPair]) -> list[AnswerChange]:
    """Each aspect in which two answers to a submission differ; empty where they are alike."""
    return [change for pair in answer_pairs for change in _pair_changes(pair)]


def _pair_changes(answer_pair: AnswerPair) -> Iterator[AnswerChange]:
    before, after = answer_pair.before, answer_pair.after
    options = " ".join((answer_pair.submission.command, *answer_pair.submission.options))

    def difference(
        change_kind: Kind, old_text: str, new_text: str, reason: str = ""
    ) -> AnswerChange:
        return AnswerChange(
            change_kind, answer_pair.jobs, options, old_text, new_text, reason or new_text
        )

    if isinstance(before, Granted) and isinstance(after, Granted):
        for change_kind, old_text, new_text in _grant_aspects(before, after):
            yield difference(
                change_kind, old_text, new_text, f"{change_kind}: {old_text} becomes {new_text}"
            )
        return
    answer_texts = (_outcome_text(before), _outcome_text(after))
    if type(before) is type(after):
        if answer_texts[0] != answer_texts[1]:
            yield difference("reason", *answer_texts)
        elif isinstance(before, Waits) and isinstance(after, Waits):
            yield from _start_time_changes(before, after, difference)
        return
    yield difference(
        _outcome_kind(before, after), *answer_texts, reason=_reason_text(before, after)
    )


def _start_time_changes(
    before: Waits, after: Waits, make_change: Callable[[Kind, str, str], AnswerChange]
) -> Iterator[AnswerChange]:
    """Return the difference of the times at which Slurm expects the job to start."""
    old_start, new_start = _start_time(before), _start_time(after)
    if old_start is None or new_start is None or abs(new_start - old_start) < _MIN_START_CHANGE:
        return
    kind: Kind = "later" if new_start > old_start else "sooner"
    yield make_change(kind, f"starts at {old_start}", f"starts at {new_start}")


def _start_time(waiting_answer: Waits) -> datetime | None:
    start_match = re.search(r"\bStartTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", waiting_answer.record)
    return datetime.fromisoformat(start_match[1]) if start_match else None


def _outcome_kind(before: Answer, after: Answer) -> Kind:
    if isinstance(after, Refused):
        return "refused"
    if isinstance(before, Refused):
        return "accepted"
    return "waits" if isinstance(after, Waits) else "starts"


def _reason_text(before: Answer, after: Answer) -> str:
    """Return why it is refused or waits after the change, or before it if it starts after the
    change.
    """
    return _outcome_text(before) if isinstance(after, Granted) else _outcome_text(after)


def _outcome_text(slurm_answer: Answer) -> str:
    if isinstance(slurm_answer, Refused):
        return re.sub(r"^\w+: (?:error: )?", "", slurm_answer.message)
    if isinstance(slurm_answer, Waits):
        return slurm_answer.reason
    return f"starts on {_node_names_text(slurm_answer)}"


def _node_names_text(granted_answer: Granted) -> str:
    return ",".join(sorted(node.name for node in granted_answer.nodes))


def _grant_aspects(before: Granted, after: Granted) -> Iterator[tuple[Kind, str, str]]:
    # On different nodes the indices of the GPUs mean nothing, but their number does.
    same_nodes = _node_names_text(before) == _node_names_text(after)
    join_nodes, gpu_text = (
        (_join_named, _gpu_indices_text) if same_nodes else (_join_unnamed, _gpu_count)
    )
    aspects: tuple[tuple[Kind, str, str], ...] = (
        ("nodes", _node_names_text(before), _node_names_text(after)),
        ("GPUs", join_nodes(before, gpu_text), join_nodes(after, gpu_text)),
        ("CPUs", join_nodes(before, _cpu_count), join_nodes(after, _cpu_count)),
        ("memory", join_nodes(before, _memory_text), join_nodes(after, _memory_text)),
        ("limits", _limits_text(before), _limits_text(after)),
    )
    yield from (aspect for aspect in aspects if aspect[1] != aspect[2])


def _gpu_indices_text(node: GrantedNode) -> str:
    share_text = ",".join(f"{index}/{count}" for index, count in sorted(node.shares.items()))
    indices = ",".join(map(str, node.gpus))
    return " ".join(filter(None, (indices, share_text))) or "none"


def _gpu_count(node: GrantedNode) -> str:
    share_count = sum(node.shares.values())
    return f"{len(node.gpus)} GPUs" + (f" {share_count} shares" if share_count else "")


def _cpu_count(node: GrantedNode) -> str:
    return f"{len(node.cpus)} CPUs"


def _memory_text(node: GrantedNode) -> str:
    return f"{node.memory} MiB"


def _join_named(granted_answer: Granted, format_node: _NodeText) -> str:
    nodes = sorted(granted_answer.nodes, key=lambda node: node.name)
    return "; ".join(f"{node.name} {format_node(node)}" for node in nodes)


def _join_unnamed(granted_answer: Granted, format_node: _NodeText) -> str:
    return "; ".join(sorted(format_node(node) for node in granted_answer.nodes))


def _limits_text(granted_answer: Granted) -> str:
    limit = re.search(r"\bTimeLimit=(\S+)", granted_answer.record)
    limit_text = limit[1] if limit else "not known"
    # The backfill scheduler gives a job without a limit a year, and takes that back later.
    limit_text = "UNLIMITED" if limit_text == "365-00:00:00" else limit_text
    return f"partition {granted_answer.partition}, time limit {limit_text}"
