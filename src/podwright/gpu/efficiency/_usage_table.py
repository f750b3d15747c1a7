"""Summarises many jobs in one table: waiting times, unused grants, and partitions that starve.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from podwright.gpu.efficiency._job_report import span
from podwright.gpu.efficiency._sacct_jobs import AccountedJob
from podwright.tables import table

#: The GPU load in the line of a report, as AdminComment keeps it.
_GPU_LOAD_PATTERN = re.compile(
    r"GPUs (\d+) % busy", re.I
)  # sacctmgr converts letters to lower case


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


def month(jobs: Iterable[AccountedJob], group_by: str = "partition") -> list[MonthRow]:
    """One row per partition, or per user (by: `user`), most GPU hours first, and a last row for all
    jobs."""
    counted_jobs = [job for job in jobs if job.start or job.state == "PENDING"]
    jobs_by_group: dict[str, list[AccountedJob]] = {}
    for job in counted_jobs:
        jobs_by_group.setdefault(job.user if group_by == "user" else job.partition, []).append(job)
    rows = [_month_row(group_name, group_jobs) for group_name, group_jobs in jobs_by_group.items()]
    rows.sort(key=lambda row: (-row.gpu_hours, row.name))
    return [*rows, *([_month_row("all", counted_jobs)] if len(rows) > 1 else [])]


def _month_row(group_name: str, all_jobs: Sequence[AccountedJob]) -> MonthRow:
    started_jobs = [job for job in all_jobs if job.start]
    wait_seconds = sorted(job.waited for job in started_jobs)
    run_seconds = sorted(job.seconds for job in started_jobs)
    median_wait = _quantile(wait_seconds, 0.5)
    return MonthRow(
        name=group_name,
        jobs=len(started_jobs),
        waiting=len(all_jobs) - len(started_jobs),
        gpu_hours=sum(job.gpu_hours for job in started_jobs),
        waited=median_wait,
        waited_95=_quantile(wait_seconds, 0.95),
        cores=_used_percent(
            (job.cpu_seconds, float(job.cpus * job.seconds)) for job in started_jobs
        ),
        memory=_used_percent(
            (job.used_memory and job.used_memory * job.seconds, float(job.memory * job.seconds))
            for job in started_jobs
        ),
        time=_used_percent(
            (float(job.seconds), float(job.limit)) for job in started_jobs if job.limit and job.end
        ),
        gpus=_used_percent(
            (_gpu_seconds(job), job.gpus * job.seconds * 1.0) for job in started_jobs if job.gpus
        ),
        starves=len(started_jobs) > 1 and median_wait > _quantile(run_seconds, 0.5),
    )


def _gpu_seconds(job: AccountedJob) -> float | None:
    match = _GPU_LOAD_PATTERN.search(job.comment)
    return None if match is None else int(match[1]) / 100 * job.gpus * job.seconds


def _used_percent(usage_pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """Return used over had, in per cent, over the jobs for which both are known."""
    known_pairs = [(used, granted) for used, granted in usage_pairs if used is not None and granted]
    granted = sum(pair[1] for pair in known_pairs)
    return 100 * sum(pair[0] for pair in known_pairs) / granted if granted else None


def _quantile(sorted_values: Sequence[float], quantile: float) -> float:
    """Return the value at this share of the sorted values; 0 if there are none."""
    return (
        float(sorted_values[min(int(quantile * len(sorted_values)), len(sorted_values) - 1)])
        if sorted_values
        else 0.0
    )


def month_text(rows: Sequence[MonthRow], name_heading: str) -> str:
    """Return the table for people. name_heading: the heading of the column that names a row."""

    def share(percentage: float | None) -> str:
        return "" if percentage is None else f"{percentage:.0f} %"

    header = (name_heading, "Jobs", "Waiting", "GPU hours", "Waited", "95 % below", "GPUs", "Cores")
    table_rows = [
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
    table_text = table((*header, "Memory", "Time"), table_rows)
    table_text += "\nGPUs, Cores, Memory, Time: the share that was used of what jobs had."
    if any(row.starves for row in rows):
        table_text += "\n* starves: half of its jobs waited for longer than half of them ran."
    return table_text
