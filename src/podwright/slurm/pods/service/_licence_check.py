"""What a job asked for, held against what Slurm counts for it. Pure.

The request is what SPANK handed over at submission: job_submit checked it, Slurm keeps it over
every restart, and nobody can change it. Licences are only its count: a user may take his off a
running job, `scontrol update` changes them, releases before 25.11.7 lose them at a requeue, and a
slurm.conf without ours drops them. Where the two differ, nothing is given: the job is held, and
reads why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._pods import GCDS, HET_WAIT, MARK, Site, SlurmPod, parse_licences
from podwright.slurm.pods.service._queue import Listed


class Wanted(NamedTuple):
    """Of which pod a job gets how many devices, as how many GCDs (0: it is open)."""

    pod: SlurmPod
    size: int
    gcds: int


class Differs(InvalidRequest):
    """What the job asked for is not what Slurm counts for it: it is held."""


class OtherStart(InvalidRequest):
    """The start that a hook speaks of is none of Slurm's any more: it is over, or slurmctld was
    killed and has forgotten it. What has its number now is not held or told anything for it."""


def wanted(job: HookJob, known: Listed | None, site: Site) -> Wanted | None:
    """What the job gets; None: nothing, as it asked for nothing. Raises Differs, OtherStart."""
    found = _wanted(job, known, site)
    if found is not None:
        pod, size, _ = found
        if size not in {1 << order for order in pod.orders}:
            raise Differs(f"no partition has {size} devices", asked=f"job {job.job}")
    return found


def _wanted(job: HookJob, known: Listed | None, site: Site) -> Wanted | None:
    asks = _option(job)
    if known is not None:
        _same_job(job, known)
    if job.het_job:
        return _part(job, asks, known, site)
    if asks == 0 or (asks is None and site.mode != "shared"):
        raise Differs(
            f"its licences say {_said(job.licences, site)}, and it did not ask by --ipus=N",
            asked=f"devices for job {job.job}",
        )
    licences = _ours(job.licences, site)
    pod = next((one for one in site.pods if licences.get(one.licence)), None)
    # Who does not say gets what the site had as its default when he submitted.
    size = asks or (licences[pod.licence] if pod else 0)
    if pod is None or licences != licences_of(pod, size):
        right = licences_of(pod or site.pods[0], size)
        raise Differs(
            f"it asked for {size} devices by --ipus, and Slurm counts "
            f"{_said(job.licences, site)} for it",
            asked=f"devices for job {job.job}",
            would_work="submit it anew; or, as root: scontrol update "
            f"jobid={job.job} licenses={','.join(f'{k}:{v}' for k, v in right.items())}",
        )
    gcds = parse_licences(job.licences).get(GCDS, 0)
    return Wanted(pod, size, gcds)


def licences_of(pod: SlurmPod, size: int) -> dict[str, int]:
    """The licences by which Slurm counts a job of `size` devices, the number of its GCDs aside."""
    blocks = {pod.block_licence(k): size for k in pod.orders if 1 << k <= size}
    return {pod.licence: size, MARK: 1, **blocks}


def _part(job: HookJob, asks: int | None, known: Listed | None, site: Site) -> Wanted | None:
    """A part of a heterogeneous job: its leader's licences count for all parts, so what job_submit
    noted for each is held against what the part itself asked for."""
    noted = known.wants(site.pods) if known and known.head else None
    if not asks:
        if noted:
            raise Differs(
                f"{noted[1]} devices were noted for it, and it did not ask by --ipus=N",
                asked=f"devices for job {job.job}",
            )
        return None
    if known is None:
        raise OtherStart(f"slurmctld knows no job {job.job}")
    if not known.head:
        raise Differs(
            "what its devices are to be is not noted in its AdminComment any more",
            asked=f"{asks} devices for job {job.job}",
            would_work="submit it anew",
        )
    if noted is None or noted[1] != asks:
        raise Differs(
            f"it asked for {asks} devices by --ipus, and {noted[1] if noted else 0} were noted "
            "for it",
            asked=f"devices for job {job.job}",
            would_work="submit it anew",
        )
    return Wanted(*noted)


def _same_job(job: HookJob, known: Listed) -> None:
    """Raises OtherStart where Slurm's job of this number is another, or has moved on."""
    if known.uid != -1 and job.uid not in (None, known.uid):
        raise OtherStart(f"job {job.job} is of user {known.uid}, and this is user {job.uid}'s")
    if known.het != job.het_job:
        whole = f"a part of job {known.het}" if known.het else "no part of another"
        raise OtherStart(f"job {job.job} is {whole} now")
    if known.restart > (job.restart or 0):
        raise OtherStart(
            f"this is start {job.restart or 0} of job {job.job}, which is over: Slurm has "
            f"begun start {known.restart}"
        )


def _option(job: HookJob) -> int | None:
    """What was asked for by --ipus; None: nothing was said. Raises Differs."""
    if not job.ipus:
        return None
    if not job.ipus.isascii() or not job.ipus.isdecimal() or len(job.ipus) > 18:
        raise Differs(f"--ipus={job.ipus[:40]} is no number of devices")
    return int(job.ipus)


def _ours(text: str, site: Site) -> Mapping[str, int]:
    """Those of a job's licences that are ours, but for the number of GCDs."""
    names = {name for pod in site.pods for name in pod.totals()} | {MARK, HET_WAIT}
    return {name: n for name, n in parse_licences(text).items() if name in names}


def _said(text: str, site: Site) -> str:
    words = ",".join(f"{name}:{count}" for name, count in _ours(text, site).items())
    return words or "no licences of ours"
