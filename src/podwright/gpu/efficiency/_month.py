"""Summarises many jobs in one table: waiting times, unused grants, and partitions that starve.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podwright.gpu.efficiency._accounts import AccountedJob
from podwright.gpu.efficiency._job_report import span
from podwright.tables import table

#: The GPU load in the line of a report, as AdminComment keeps it.
_GPU_LOAD = re.compile(r"GPUs (\d+) % busy", re.I)  # sacctmgr converts letters to lower case


class MonthRow(NamedTuple):
    """The figures of several jobs together.

    jobs: those that started. waiting: those that wait now. waited: seconds, the median and the 95th
    percentile. cores, memory, time, gpus: the used share of what they had, per cent; None: not
    known. starves: whether the median wait is longer than the median run.
    """

    name: str
    jobs: int
    waiting: int
    gpu_hours: float
    waited: float
    waited_95: float
    cores: float | None
    memory: float | None
    time: float | None
    gpus: float | None
    starves: bool


def month(jobs: Iterable[AccountedJob], by: str = "partition") -> list[MonthRow]:
    """One row per partition, or per user (by: `user`), most GPU hours first, and a last row for all
    jobs."""
    known = [job for job in jobs if job.start or job.state == "PENDING"]
    groups: dict[str, list[AccountedJob]] = {}
    for job in known:
        groups.setdefault(job.user if by == "user" else job.partition, []).append(job)
    rows = [_row(name, members) for name, members in groups.items()]
    rows.sort(key=lambda row: (-row.gpu_hours, row.name))
    return [*rows, *([_row("all", known)] if len(rows) > 1 else [])]


def _row(name: str, all_jobs: Sequence[AccountedJob]) -> MonthRow:
    jobs = [job for job in all_jobs if job.start]
    waits = sorted(job.waited for job in jobs)
    runs = sorted(job.seconds for job in jobs)
    median = _rank(waits, 0.5)
    return MonthRow(
        name=name,
        jobs=len(jobs),
        waiting=len(all_jobs) - len(jobs),
        gpu_hours=sum(job.gpu_hours for job in jobs),
        waited=median,
        waited_95=_rank(waits, 0.95),
        cores=_share((job.cpu_seconds, float(job.cpus * job.seconds)) for job in jobs),
        memory=_share(
            (job.used_memory and job.used_memory * job.seconds, float(job.memory * job.seconds))
            for job in jobs
        ),
        time=_share(
            (float(job.seconds), float(job.limit)) for job in jobs if job.limit and job.end
        ),
        gpus=_share((_gpu_seconds(job), job.gpus * job.seconds * 1.0) for job in jobs if job.gpus),
        starves=len(jobs) > 1 and median > _rank(runs, 0.5),
    )


def _gpu_seconds(job: AccountedJob) -> float | None:
    match = _GPU_LOAD.search(job.comment)
    return None if match is None else int(match[1]) / 100 * job.gpus * job.seconds


def _share(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Return used over had, in per cent, over the jobs for which both are known."""
    known = [(used, granted) for used, granted in pairs if used is not None and granted]
    granted = sum(pair[1] for pair in known)
    return 100 * sum(pair[0] for pair in known) / granted if granted else None


def _rank(values: Sequence[float], share: float) -> float:
    """Return the value at this share of the sorted values; 0 if there are none."""
    return float(values[min(int(share * len(values)), len(values) - 1)]) if values else 0.0


def month_text(rows: Sequence[MonthRow], name: str) -> str:
    """Return the table for people. name: the heading of the column that names a row."""

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.0f} %"

    header = (name, "Jobs", "Waiting", "GPU hours", "Waited", "95 % below", "GPUs", "Cores")
    lines = [
        (
            row.name + (" *" if row.starves else ""),
            row.jobs,
            row.waiting,
            f"{row.gpu_hours:.1f}",
            span(row.waited),
            span(row.waited_95),
            *map(share, (row.gpus, row.cores, row.memory, row.time)),
        )
        for row in rows
    ]
    text = table((*header, "Memory", "Time"), lines)
    text += "\nGPUs, Cores, Memory, Time: the share that was used of what jobs had."
    if any(row.starves for row in rows):
        text += "\n* starves: half of its jobs waited for longer than half of them ran."
    return text
