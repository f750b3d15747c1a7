"""Computes a job's efficiency report: how much it used of its grant, and what to request next time.
Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from podwright.gpu.efficiency._sacct_jobs import AccountedJob
from podwright.gpu.efficiency._samples import GpuUse, Sampled

#: GPUs with load in a smaller share of the samples are waiting for something else.
_MIN_BUSY_SHARE = 0.5
#: The next request is this many times the use.
_REQUEST_FACTOR = 1.25
_LATE_START_S = 60.0  # seconds at the start without any work that are worth a word


class Advice(NamedTuple):
    """text: a sentence. ask: the option for the next submission; empty if there is none."""

    text: str
    ask: str = ""

    def __str__(self) -> str:
        return f"{self.text}: {self.ask}" if self.ask else self.text


class Efficiency(NamedTuple):
    """A job's report. source: the source of the GPUs' use: samples, accounting, or nothing.

    gpu_load: per cent, the mean over all GPUs and the sampled time. gpus_used: their number. cores:
    the mean number of busy cores. idle_start: seconds from its start in which no GPU had any load.
    None: not known, as where the driver reports no load of one of the GPUs.
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


def report(job: AccountedJob, job_samples: Sampled | None) -> Efficiency:
    """The report of a job, which may still be running."""
    gpu_uses = job_samples.uses if job_samples else ()
    busy_cores = (
        job.cpu_seconds / job.seconds if job.cpu_seconds is not None and job.seconds else None
    )
    efficiency = Efficiency(
        job=job,
        source="samples" if gpu_uses else "accounting" if job.gpu_peak is not None else "nothing",
        uses=gpu_uses,
        gpu_load=_mean([use.load for use in gpu_uses]),
        gpus_used=_sum([use.used for use in gpu_uses]),
        cores=busy_cores,
        memory=job.used_memory,
        idle_start=_idle_start_s(job, job_samples),
        idle_ranks=job_samples.idle_ranks if job_samples else (),
        every=job_samples.every if job_samples else 0.0,
        advice=(),
    )
    return efficiency._replace(advice=tuple(_all_advice(efficiency)))


def _sum(values: Sequence[float | None]) -> int | None:
    """The sum; None where one of them is not known, or where there are none."""
    known = [value for value in values if value is not None]
    return int(sum(known)) if known and len(known) == len(values) else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def job_of_samples(job_id: str, job_samples: Sampled) -> AccountedJob:
    """A job as its samples alone show it, for a site without slurmdbd.

    Its `state` is empty, which stands for "not known"; so are its limit, cores and memory, which
    are 0 or None. Times are those of the first and the last sample, in seconds since 1970.
    """
    node_names = sorted({use.node for use in job_samples.uses})
    return AccountedJob(
        id=job_id,
        name="",
        user="",
        partition="",
        state="",
        submit=0,
        start=int(job_samples.first),
        end=int(job_samples.last),
        seconds=int(job_samples.last - job_samples.first),
        limit=0,
        nodes=len(node_names),
        node_list=",".join(node_names),
        cpus=0,
        memory=0,
        gpus=len(job_samples.uses),
    )


def _idle_start_s(job: AccountedJob, job_samples: Sampled | None) -> float | None:
    if job_samples is None or any(use.load is None for use in job_samples.uses):
        return None
    job_start = min(job.start or job_samples.first, job_samples.first)
    return (
        job_samples.last if job_samples.busy_from is None else job_samples.busy_from
    ) - job_start


def _all_advice(efficiency: Efficiency) -> list[Advice]:
    return [
        *_gpu_advice(efficiency),
        *_start_advice(efficiency),
        *_core_advice(efficiency),
        *_memory_advice(efficiency.job),
        *_time_limit_advice(efficiency.job),
    ]


def _gpu_advice(efficiency: Efficiency) -> list[Advice]:
    job, uses = efficiency.job, efficiency.uses
    if not job.gpus:
        return []
    if not uses:
        return []
    advice = []
    idle_gpus = [use for use in uses if use.used is False]
    if len(idle_gpus) == len(uses):
        return [Advice(f"none of its {_gpu_count_text(len(uses))} was ever used", "no --gpus")]
    if idle_gpus:
        verb = "was" if len(idle_gpus) == 1 else "were"
        advice.append(
            Advice(
                f"{len(idle_gpus)} of {_gpu_count_text(len(uses))} {verb} never used",
                _fewer_gpus_option(uses),
            )
        )
    used_gpus = [use for use in uses if use.used]
    busy_share = _mean([use.busy for use in used_gpus])
    if busy_share is not None and busy_share < _MIN_BUSY_SHARE:
        advice.append(
            Advice(
                f"GPUs that it used did nothing in {100 * (1 - busy_share):.0f} % of the time; "
                "look at what they wait for: reading data, the network, one slow rank"
            )
        )
    fullest = max(((use.most or 0, use.total) for use in used_gpus), default=(0, 0))
    if all(use.most for use in used_gpus) and 0 < fullest[0] < fullest[1] / 4:
        advice.append(
            Advice(
                f"at most {amount(fullest[0])} of {amount(fullest[1])} of a GPU's memory were "
                "used; larger batches, smaller GPUs or slices of them would do"
            )
        )
    if efficiency.idle_ranks:
        rank_names = ", ".join(str(rank) for _, rank in efficiency.idle_ranks[:8])
        ellipsis = "" if len(efficiency.idle_ranks) <= 8 else ", …"
        advice.append(
            Advice(
                f"{len(efficiency.idle_ranks)} ranks never held a GPU while others did: "
                f"{rank_names}{ellipsis}"
            )
        )
    return advice


def _fewer_gpus_option(uses: tuple[GpuUse, ...]) -> str:
    """Return the option that requests only the GPUs that were used."""
    used_by_node: dict[str, int] = {}
    for use in uses:
        used_by_node[use.node] = used_by_node.get(use.node, 0) + (use.used is not False)
    node_counts = [count for count in used_by_node.values() if count]
    option = f"--gpus-per-node={max(node_counts)}"
    return (
        option if len(node_counts) == len(used_by_node) else f"--nodes={len(node_counts)} {option}"
    )


def _start_advice(efficiency: Efficiency) -> list[Advice]:
    seconds, job = efficiency.idle_start, efficiency.job
    if (
        seconds is None
        or not efficiency.gpus_used
        or seconds < max(_LATE_START_S, 0.05 * job.seconds)
    ):
        return []
    return [
        Advice(
            f"nothing ran on any GPU in the first {span(seconds)} of {span(job.seconds)}; "
            "what takes "
            "that long, such as copies and builds, can be a job without GPUs before this one",
            "--dependency=afterok:JOB",
        )
    ]


def _core_advice(efficiency: Efficiency) -> list[Advice]:
    job = efficiency.job
    if efficiency.cores is None or job.cpus < 4 or efficiency.cores > 0.4 * job.cpus:
        return []
    cores = max(1, math.ceil(efficiency.cores * _REQUEST_FACTOR))
    if job.gpus and job.cpus % job.gpus == 0:
        each = max(1, math.ceil(cores / job.gpus))
        if each >= job.cpus // job.gpus:
            return []
        option = f"--cpus-per-gpu={each}"
    else:
        each = max(1, math.ceil(cores / max(job.tasks, 1)))
        option = f"--cpus-per-task={each}"
    return [Advice(f"{efficiency.cores:.1f} of {job.cpus} cores were at work on average", option)]


def _memory_advice(job: AccountedJob) -> list[Advice]:
    if not job.used_memory or not job.memory or job.used_memory > 0.5 * job.memory:
        return []
    gib = math.ceil(job.used_memory * _REQUEST_FACTOR / max(job.nodes, 1) / (1 << 30))
    if (gib << 30) * max(job.nodes, 1) >= job.memory:
        return []
    return [
        Advice(
            f"at most {amount(job.used_memory)} of {amount(job.memory)} of memory were used",
            f"--mem={gib}G",
        )
    ]


def _time_limit_advice(job: AccountedJob) -> list[Advice]:
    completed = job.state == "COMPLETED"
    if not completed or job.limit < 3600 or job.seconds > 0.4 * job.limit:
        return []
    seconds = max(math.ceil(job.seconds * 1.5 / 600) * 600, 600)
    sentence = f"it ran {span(job.seconds)} of {span(job.limit)}; shorter jobs start earlier"
    return [Advice(sentence, f"--time={seconds // 3600}:{seconds % 3600 // 60:02}:00")]


def _gpu_count_text(gpu_count: int) -> str:
    return f"{gpu_count} GPU" if gpu_count == 1 else f"{gpu_count} GPUs"


def amount(byte_count: float) -> str:
    """Return bytes in words: `1.5 GiB`, `900 MiB`."""
    gib = byte_count / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"


def span(seconds: float) -> str:
    """Return seconds in words: `1 h 5 min`, `4 min`, `12 s`."""
    rounded = int(seconds)
    if rounded >= 3600:
        return f"{rounded // 3600} h {rounded % 3600 // 60} min"
    return f"{rounded // 60} min" if rounded >= 120 else f"{rounded} s"
