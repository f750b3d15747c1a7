"""Verdicts as a table with a sentence for people, and as rows for JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.gpu.binding._verdict import ProbedTask, Verdict
from podwright.ground.tables import table


def as_rows(
    tasks: Sequence[ProbedTask], verdicts: Mapping[int, Verdict]
) -> list[dict[str, object]]:
    """Return each task with its GPUs and its verdict. verdicts: by rank."""
    return [
        {
            **task._asdict(),
            "gpus": [gpu._asdict() for gpu in task.gpus],
            "verdict": verdicts[task.rank]._asdict(),
        }
        for task in tasks
    ]


def as_text(tasks: Sequence[ProbedTask], verdicts: Mapping[int, Verdict]) -> str:
    """Return a row for each GPU of each task, and how many tasks got what was asked."""
    rows: list[tuple[object, ...]] = []
    for task in tasks:
        verdict = verdicts[task.rank]
        for position, gpu in enumerate(task.gpus):
            task_cells = (task.rank, task.node) if position == 0 else ("", "")
            verdict_cells = (task.cpus, verdict) if position == 0 else ("", "")
            node = gpu.numa if gpu.numa >= 0 else ""
            rows.append((*task_cells, gpu.number, gpu.uuid, gpu.bus, node, *verdict_cells))
        if not task.gpus:
            rows.append((task.rank, task.node, "", "", "", "", task.cpus, verdict))
    header = ("Task", "Node", "GPU", "UUID", "Bus", "NUMA", "Cores", "Verdict")
    return f"{table(header, rows)}\n{_verdict_summary(list(verdicts.values()))}"


def _verdict_summary(verdicts: list[Verdict]) -> str:
    task_count = len(verdicts)
    bad_count = sum(verdict.bad for verdict in verdicts)
    if bad_count:
        return f"{bad_count} of {task_count} tasks did not get what was asked."
    sharing_texts = {
        "distinct": "have GPUs of their own",
        "shared": "share GPUs with others",
        "none": "have no GPU",
    }
    clauses = [
        f"{sharing_count} {text}"
        for sharing, text in sharing_texts.items()
        if (sharing_count := sum(verdict.own == sharing for verdict in verdicts))
    ]
    far_count = sum(verdict.where in ("far", "partly") for verdict in verdicts)
    far_clause = f"; {far_count} run on cores away from them" if far_count else ""
    return f"Of {task_count} tasks {', '.join(clauses)}{far_clause}: as asked."
