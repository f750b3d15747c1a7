"""Computes a job's efficiency report: how much it used of its grant, and what to request next time.
Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from podwright.gpu.efficiency._accounts import AccountedJob
from podwright.gpu.efficiency._samples import GpuUse, Sampled

#: GPUs with load in a smaller share of the samples are waiting for something else.
_LOW = 0.5
#: The next request is this many times the use.
_SPARE = 1.25
_LATE = 60.0  # seconds at the start without any work that are worth a word


class Advice(NamedTuple):
    """text: a sentence. ask: the option for the next submission; empty if there is none."""

    text: str
    ask: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.ask}" if self.ask else self.text


class Efficiency(NamedTuple):
    """A job's report. source: the source of the GPUs' use: samples, accounting, or nothing.

    gpu_load: per cent, the mean over all GPUs and the sampled time. cores: the mean number of busy
    cores. idle_start: seconds from its start in which no GPU had any load; None: not known.
    """

    job: AccountedJob
    source: str
    uses: tuple[GpuUse, ...]
    gpu_load: float | None
    gpus_used: int | None
    cores: float | None
    memory: int | None
    idle_start: float | None
    idle_ranks: tuple[tuple[str, int], ...]
    every: float
    advice: tuple[Advice, ...]


def report(job: AccountedJob, sampled: Sampled | None) -> Efficiency:
    """The report of a job, which may still be running."""
    uses = sampled.uses if sampled else ()
    cores = job.cpu_seconds / job.seconds if job.cpu_seconds is not None and job.seconds else None
    efficiency = Efficiency(
        job=job,
        source="samples" if uses else "accounting" if job.gpu_peak is not None else "nothing",
        uses=uses,
        gpu_load=sum(use.load for use in uses) / len(uses) if uses else None,
        gpus_used=sum(use.used for use in uses) if uses else None,
        cores=cores,
        memory=job.used_memory,
        idle_start=_idle_start(job, sampled),
        idle_ranks=sampled.idle_ranks if sampled else (),
        every=sampled.every if sampled else 0.0,
        advice=(),
    )
    return efficiency._replace(advice=tuple(_advice(efficiency)))


def job_of_samples(number: str, sampled: Sampled) -> AccountedJob:
    """A job as its samples alone show it, for a site without slurmdbd.

    Its `state` is empty, which stands for "not known"; so are its limit, cores and memory, which
    are 0 or None. Times are those of the first and the last sample, in seconds since 1970.
    """
    nodes = sorted({use.node for use in sampled.uses})
    return AccountedJob(
        id=number,
        name="",
        user="",
        partition="",
        state="",
        submit=0,
        start=int(sampled.first),
        end=int(sampled.last),
        seconds=int(sampled.last - sampled.first),
        limit=0,
        nodes=len(nodes),
        node_list=",".join(nodes),
        cpus=0,
        memory=0,
        gpus=len(sampled.uses),
    )


def _idle_start(job: AccountedJob, sampled: Sampled | None) -> float | None:
    if sampled is None:
        return None
    start = min(job.start or sampled.first, sampled.first)
    return (sampled.last if sampled.busy_from is None else sampled.busy_from) - start


def _advice(efficiency: Efficiency) -> list[Advice]:
    return [
        *_of_gpus(efficiency),
        *_of_start(efficiency),
        *_of_cores(efficiency),
        *_of_memory(efficiency.job),
        *_of_time(efficiency.job),
    ]


def _of_gpus(efficiency: Efficiency) -> list[Advice]:
    job, uses = efficiency.job, efficiency.uses
    if not job.gpus:
        return []
    if not uses:
        if job.gpu_peak == 0:
            return [Advice("no GPU was ever used, by Slurm's accounting", "no --gpus")]
        return []
    out = []
    idle = [use for use in uses if not use.used]
    if len(idle) == len(uses):
        return [Advice(f"none of its {_gpus(len(uses))} was ever used", "no --gpus")]
    if idle:
        were = "was" if len(idle) == 1 else "were"
        out.append(Advice(f"{len(idle)} of {_gpus(len(uses))} {were} never used", _fewer(uses)))
    working = [use for use in uses if use.used]
    busy = sum(use.busy for use in working) / len(working)
    if busy < _LOW:
        out.append(
            Advice(
                f"GPUs that it used did nothing in {100 * (1 - busy):.0f} % of the time; look at "
                "what they wait for: reading data, the network, one slow rank"
            )
        )
    peak = max(working, key=lambda use: use.most)
    if 0 < peak.most < peak.total / 4:
        out.append(
            Advice(
                f"at most {amount(peak.most)} of {amount(peak.total)} of a GPU's memory were used; "
                "larger batches, smaller GPUs or slices of them would do"
            )
        )
    if efficiency.idle_ranks:
        names = ", ".join(str(rank) for _, rank in efficiency.idle_ranks[:8])
        more = "" if len(efficiency.idle_ranks) <= 8 else ", …"
        out.append(
            Advice(
                f"{len(efficiency.idle_ranks)} ranks never held a GPU while others did: "
                f"{names}{more}"
            )
        )
    return out


def _fewer(uses: tuple[GpuUse, ...]) -> str:
    """Return the option that requests only the GPUs that were used."""
    by_node: dict[str, int] = {}
    for use in uses:
        by_node[use.node] = by_node.get(use.node, 0) + use.used
    nodes = [count for count in by_node.values() if count]
    option = f"--gpus-per-node={max(nodes)}"
    return option if len(nodes) == len(by_node) else f"--nodes={len(nodes)} {option}"


def _of_start(efficiency: Efficiency) -> list[Advice]:
    idle, job = efficiency.idle_start, efficiency.job
    if idle is None or not efficiency.gpus_used or idle < max(_LATE, 0.05 * job.seconds):
        return []
    return [
        Advice(
            f"nothing ran on any GPU in the first {span(idle)} of {span(job.seconds)}; what takes "
            "that long, such as copies and builds, can be a job without GPUs before this one",
            "--dependency=afterok:JOB",
        )
    ]


def _of_cores(efficiency: Efficiency) -> list[Advice]:
    job = efficiency.job
    if efficiency.cores is None or job.cpus < 4 or efficiency.cores > 0.4 * job.cpus:
        return []
    wanted = max(1, math.ceil(efficiency.cores * _SPARE))
    if job.gpus and job.cpus % job.gpus == 0:
        each = max(1, math.ceil(wanted / job.gpus))
        if each >= job.cpus // job.gpus:
            return []
        ask = f"--cpus-per-gpu={each}"
    else:
        each = max(1, math.ceil(wanted / max(job.tasks, 1)))
        ask = f"--cpus-per-task={each}"
    return [Advice(f"{efficiency.cores:.1f} of {job.cpus} cores were at work on average", ask)]


def _of_memory(job: AccountedJob) -> list[Advice]:
    if not job.used_memory or not job.memory or job.used_memory > 0.5 * job.memory:
        return []
    wanted = math.ceil(job.used_memory * _SPARE / max(job.nodes, 1) / (1 << 30))
    if (wanted << 30) * max(job.nodes, 1) >= job.memory:
        return []
    return [
        Advice(
            f"at most {amount(job.used_memory)} of {amount(job.memory)} of memory were used",
            f"--mem={wanted}G",
        )
    ]


def _of_time(job: AccountedJob) -> list[Advice]:
    completed = job.state == "COMPLETED"
    if not completed or job.limit < 3600 or job.seconds > 0.4 * job.limit:
        return []
    wanted = max(math.ceil(job.seconds * 1.5 / 600) * 600, 600)
    text = f"it ran {span(job.seconds)} of {span(job.limit)}; shorter jobs start earlier"
    return [Advice(text, f"--time={wanted // 3600}:{wanted % 3600 // 60:02}:00")]


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def amount(size: float) -> str:
    """Return bytes in words: `1.5 GiB`, `900 MiB`."""
    gib = size / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"


def span(seconds: float) -> str:
    """Return seconds in words: `1 h 5 min`, `4 min`, `12 s`."""
    rounded = int(seconds)
    if rounded >= 3600:
        return f"{rounded // 3600} h {rounded % 3600 // 60} min"
    return f"{rounded // 60} min" if rounded >= 120 else f"{rounded} s"
