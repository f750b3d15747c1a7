"""Verdicts as a table with a sentence for people, and as rows for JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.gpu.binding._verdict import Task, Verdict
from podwright.tables import table


def as_rows(tasks: Sequence[Task], verdicts: Mapping[int, Verdict]) -> list[dict[str, object]]:
    """Return each task with its GPUs and its verdict. verdicts: by rank."""
    return [
        {
            **task._asdict(),
            "gpus": [gpu._asdict() for gpu in task.gpus],
            "verdict": verdicts[task.rank]._asdict(),
        }
        for task in tasks
    ]


def as_text(tasks: Sequence[Task], verdicts: Mapping[int, Verdict]) -> str:
    """Return a row for each GPU of each task, and how many tasks got what was asked."""
    rows: list[tuple[object, ...]] = []
    for task in tasks:
        verdict = verdicts[task.rank]
        for n, gpu in enumerate(task.gpus):
            head = (task.rank, task.node) if n == 0 else ("", "")
            tail = (task.cpus, verdict) if n == 0 else ("", "")
            numa = gpu.numa if gpu.numa >= 0 else ""
            rows.append((*head, gpu.number, gpu.uuid, gpu.bus, numa, *tail))
        if not task.gpus:
            rows.append((task.rank, task.node, "", "", "", "", task.cpus, verdict))
    header = ("Task", "Node", "GPU", "UUID", "Bus", "NUMA", "Cores", "Verdict")
    return f"{table(header, rows)}\n{_summary(list(verdicts.values()))}"


def _summary(verdicts: list[Verdict]) -> str:
    count = len(verdicts)
    bad = sum(verdict.bad for verdict in verdicts)
    if bad:
        return f"{bad} of {count} tasks did not get what was asked."
    words = {
        "distinct": "have GPUs of their own",
        "shared": "share GPUs with others",
        "none": "have no GPU",
    }
    parts = [
        f"{as_asked} {text}"
        for own, text in words.items()
        if (as_asked := sum(verdict.own == own for verdict in verdicts))
    ]
    far = sum(verdict.where in ("far", "partly") for verdict in verdicts)
    far_clause = f"; {far} run on cores away from them" if far else ""
    return f"Of {count} tasks {', '.join(parts)}{far_clause}: as asked."
