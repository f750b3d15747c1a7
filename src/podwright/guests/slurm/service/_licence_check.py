"""Compares what a job asked for with what Slurm counts for it. Pure.

The request is what SPANK passed on at submission: job_submit checked it, Slurm keeps it over every
restart, and nobody can change it. The licences are only its count, and they can differ from it: a
user may remove them from his running job, `scontrol update` changes them, releases before 25.11.7
lose them at a requeue, and a slurm.conf without our licences drops them. Where the two differ, the
job gets nothing: it is held, and its comment says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.guests.slurm.service._job_request import HookJob
from podwright.guests.slurm.service._pods import (
    GCDS,
    HET_WAIT,
    MARK,
    Site,
    SlurmPod,
    parse_licences,
)
from podwright.guests.slurm.service._queue import Listed


class Wanted(NamedTuple):
    """The pod, the number of devices and the number of GCDs that a job gets. GCDs of 0: the number
    is open.
    """

    pod: SlurmPod
    size: int
    gcds: int


class Differs(InvalidRequest):
    """What the job asked for is not what Slurm counts for it, so the job is held."""


class OtherStart(InvalidRequest):
    """The start that a hook reports no longer exists in Slurm.

    Either it is over, or slurmctld was killed and has forgotten it. A job that has its number now
    is not held for it, and is told nothing about it.
    """


def wanted(job: HookJob, known: Listed | None, site: Site) -> Wanted | None:
    """Return what the job gets, or None if it asked for nothing. Raises Differs, OtherStart."""
    request = _wanted(job, known, site)
    if request is not None:
        pod, size, _ = request
        if size not in {1 << order for order in pod.orders}:
            raise Differs(f"no partition has {size} devices", operation=f"job {job.job}")
    return request


def _wanted(job: HookJob, known: Listed | None, site: Site) -> Wanted | None:
    asks = _option(job)
    if known is not None:
        _same_job(job, known)
    if job.het_job:
        return _part(job, asks, known, site)
    if asks == 0 or (asks is None and site.mode != "shared"):
        raise Differs(
            f"its licences say {_described(job.licences, site)}, and it did not ask by --ipus=N",
            operation=f"devices for job {job.job}",
        )
    licences = _ours(job.licences, site)
    pod = next((pod for pod in site.pods if licences.get(pod.licence)), None)
    # A job that gave no number gets the default that the site had when it was submitted.
    size = asks or (licences[pod.licence] if pod else 0)
    if pod is None or licences != licences_of(pod, size):
        right = licences_of(pod or site.pods[0], size)
        raise Differs(
            f"it asked for {size} devices by --ipus, and Slurm counts "
            f"{_described(job.licences, site)} for it",
            operation=f"devices for job {job.job}",
            would_work="submit it anew; or, as root: scontrol update "
            f"jobid={job.job} licenses={','.join(f'{k}:{v}' for k, v in right.items())}",
        )
    gcds = parse_licences(job.licences).get(GCDS, 0)
    return Wanted(pod, size, gcds)


def licences_of(pod: SlurmPod, size: int) -> dict[str, int]:
    """Return the licences by which Slurm counts a job of `size` devices, without the licence for
    its number of GCDs.
    """
    blocks = {pod.block_licence(k): size for k in pod.orders if 1 << k <= size}
    return {pod.licence: size, MARK: 1, **blocks}


def _part(job: HookJob, asks: int | None, known: Listed | None, site: Site) -> Wanted | None:
    """Return what a part of a heterogeneous job gets.

    The leader's licences count for all parts. So what job_submit noted for each part is compared
    with what the part itself asked for.
    """
    noted = known.request(site.pods) if known and known.head else None
    if not asks:
        if noted:
            raise Differs(
                f"{noted[1]} devices were noted for it, and it did not ask by --ipus=N",
                operation=f"devices for job {job.job}",
            )
        return None
    if known is None:
        raise OtherStart(f"slurmctld knows no job {job.job}")
    if not known.head:
        raise Differs(
            "what its devices are to be is not noted in its AdminComment any more",
            operation=f"{asks} devices for job {job.job}",
            would_work="submit it anew",
        )
    if noted is None or noted[1] != asks:
        raise Differs(
            f"it asked for {asks} devices by --ipus, and {noted[1] if noted else 0} were noted "
            "for it",
            operation=f"devices for job {job.job}",
            would_work="submit it anew",
        )
    return Wanted(*noted)


def _same_job(job: HookJob, known: Listed) -> None:
    """Raise OtherStart if Slurm's job of this number is another one, or has been restarted
    since.
    """
    if known.uid != -1 and job.uid not in (None, known.uid):
        raise OtherStart(f"job {job.job} is of user {known.uid}, and this is user {job.uid}'s")
    if known.het != job.het_job:
        membership = f"a part of job {known.het}" if known.het else "no part of another"
        raise OtherStart(f"job {job.job} is {membership} now")
    if known.restart > (job.restart or 0):
        raise OtherStart(
            f"this is start {job.restart or 0} of job {job.job}, which is over: Slurm has "
            f"begun start {known.restart}"
        )


def _option(job: HookJob) -> int | None:
    """Return the value of --ipus, or None if it was not given. Raises Differs."""
    if not job.ipus:
        return None
    if not job.ipus.isascii() or not job.ipus.isdecimal() or len(job.ipus) > 18:
        raise Differs(f"--ipus={job.ipus[:40]} is not a number of devices")
    return int(job.ipus)


def _ours(text: str, site: Site) -> Mapping[str, int]:
    """Return those of a job's licences that are ours, without the licence for the number of
    GCDs.
    """
    names = {name for pod in site.pods for name in pod.totals()} | {MARK, HET_WAIT}
    return {name: n for name, n in parse_licences(text).items() if name in names}


def _described(text: str, site: Site) -> str:
    words = ",".join(f"{name}:{count}" for name, count in _ours(text, site).items())
    return words or "no licences of ours"
