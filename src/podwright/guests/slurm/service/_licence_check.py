"""Compares what a job asked for with what Slurm counts for it. Pure.

The request is what SPANK passed on at submission: job_submit checked it, Slurm keeps it over every
restart, and nobody can change it. The licences are only its count, and they can differ from it: a
user may remove them from his running job, `scontrol update` changes them, releases before 25.11.7
lose them at a requeue, and a slurm.conf without our licences drops them. Where the two differ, the
job gets nothing: it goes back to the queue, is held there, and its comment says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._pods_and_licences import (
    GCDS,
    HET_WAIT_LICENCE,
    JOB_MARK_LICENCE,
    Site,
    SlurmPod,
    parse_licences,
)
from podwright.guests.slurm.service._squeue_jobs import Listed


class WantedDevices(NamedTuple):
    """The pod, the number of devices and the number of GCDs that a job gets. GCDs of 0: the number
    is open.
    """

    pod: SlurmPod
    size: int
    gcds: int


class LicencesDiffer(InvalidRequest):
    """What the job asked for is not what Slurm counts for it, so the job is held."""


class StartIsOver(InvalidRequest):
    """The start that a hook reports no longer exists in Slurm.

    Either it is over, or slurmctld was killed and has forgotten it. A job that has its number now
    is not held for it, and is told nothing about it.
    """


def wanted(hook_job: HookJob, listed_job: Listed | None, site: Site) -> WantedDevices | None:
    """Return what the job gets, or None if it asked for nothing. Raises LicencesDiffer,
    StartIsOver.
    """
    wanted_devices = _wanted_devices(hook_job, listed_job, site)
    if wanted_devices is not None:
        pod, count, _ = wanted_devices
        if count not in {1 << order for order in pod.orders}:
            raise LicencesDiffer(
                f"no partition has {count} devices", operation=f"job {hook_job.job}"
            )
    return wanted_devices


def _wanted_devices(
    hook_job: HookJob, listed_job: Listed | None, site: Site
) -> WantedDevices | None:
    asked_devices = _requested_devices(hook_job)
    if listed_job is not None:
        _check_same_start(hook_job, listed_job)
    if hook_job.het_job:
        return _part_devices(hook_job, asked_devices, listed_job, site)
    if asked_devices == 0 or (asked_devices is None and site.mode != "shared"):
        raise LicencesDiffer(
            f"its licences say {_licences_text(hook_job.licences, site)}, and it did not ask by "
            "--ipus=N",
            operation=f"devices for job {hook_job.job}",
        )
    own_licences = _own_licences(hook_job.licences, site)
    slurm_pod = next((pod for pod in site.pods if own_licences.get(pod.licence)), None)
    # A job that gave no number gets the default that the site had when it was submitted.
    device_count = asked_devices or (own_licences[slurm_pod.licence] if slurm_pod else 0)
    if slurm_pod is None or own_licences != expected_licences(slurm_pod, device_count):
        right_licences = expected_licences(slurm_pod or site.pods[0], device_count)
        licence_list = ",".join(f"{name}:{count}" for name, count in right_licences.items())
        raise LicencesDiffer(
            f"it asked for {device_count} devices by --ipus, and Slurm counts "
            f"{_licences_text(hook_job.licences, site)} for it",
            operation=f"devices for job {hook_job.job}",
            would_work="submit it anew; or, as root: scontrol update "
            f"jobid={hook_job.job} licenses={licence_list}",
        )
    gcd_count = parse_licences(hook_job.licences).get(GCDS, 0)
    return WantedDevices(slurm_pod, device_count, gcd_count)


def expected_licences(pod: SlurmPod, device_count: int) -> dict[str, int]:
    """Return the licences by which Slurm counts a job of `device_count` devices, without the
    licence for its number of GCDs.
    """
    block_licences = {
        pod.block_licence(order): device_count for order in pod.orders if 1 << order <= device_count
    }
    return {pod.licence: device_count, JOB_MARK_LICENCE: 1, **block_licences}


def _part_devices(
    hook_job: HookJob, asked_devices: int | None, listed_job: Listed | None, site: Site
) -> WantedDevices | None:
    """Return what a part of a heterogeneous job gets.

    The leader's licences count for all parts. So what job_submit noted for each part is compared
    with what the part itself asked for.
    """
    noted_request = listed_job.request(site.pods) if listed_job and listed_job.head else None
    if not asked_devices:
        if noted_request:
            raise LicencesDiffer(
                f"{noted_request[1]} devices were noted for it, and it did not ask by --ipus=N",
                operation=f"devices for job {hook_job.job}",
            )
        return None
    if listed_job is None:
        raise StartIsOver(f"slurmctld knows no job {hook_job.job}")
    if not listed_job.head:
        raise LicencesDiffer(
            "what its devices are to be is not noted in its AdminComment any more",
            operation=f"{asked_devices} devices for job {hook_job.job}",
            would_work="submit it anew",
        )
    if noted_request is None or noted_request[1] != asked_devices:
        raise LicencesDiffer(
            f"it asked for {asked_devices} devices by --ipus, and "
            f"{noted_request[1] if noted_request else 0} were noted for it",
            operation=f"devices for job {hook_job.job}",
            would_work="submit it anew",
        )
    return WantedDevices(*noted_request)


def _check_same_start(hook_job: HookJob, listed_job: Listed) -> None:
    """Raise StartIsOver if Slurm's job of this number is another one, or has been restarted
    since.
    """
    if listed_job.uid != -1 and hook_job.uid not in (None, listed_job.uid):
        raise StartIsOver(
            f"job {hook_job.job} is of user {listed_job.uid}, and this is user {hook_job.uid}'s"
        )
    if listed_job.het != hook_job.het_job:
        membership = f"a part of job {listed_job.het}" if listed_job.het else "no part of another"
        raise StartIsOver(f"job {hook_job.job} is {membership} now")
    if listed_job.restart > (hook_job.restart or 0):
        raise StartIsOver(
            f"this is start {hook_job.restart or 0} of job {hook_job.job}, which is over: Slurm "
            f"has begun start {listed_job.restart}"
        )


def _requested_devices(hook_job: HookJob) -> int | None:
    """Return the value of --ipus, or None if it was not given. Raises LicencesDiffer."""
    if not hook_job.ipus:
        return None
    if not hook_job.ipus.isascii() or not hook_job.ipus.isdecimal() or len(hook_job.ipus) > 18:
        raise LicencesDiffer(f"--ipus={hook_job.ipus[:40]} is not a number of devices")
    return int(hook_job.ipus)


def _own_licences(licence_list: str, site: Site) -> Mapping[str, int]:
    """Return those of a job's licences that are ours, without the licence for the number of
    GCDs.
    """
    licence_names = {name for pod in site.pods for name in pod.totals()} | {
        JOB_MARK_LICENCE,
        HET_WAIT_LICENCE,
    }
    return {
        name: count for name, count in parse_licences(licence_list).items() if name in licence_names
    }


def _licences_text(licence_list: str, site: Site) -> str:
    licences_text = ",".join(
        f"{name}:{count}" for name, count in _own_licences(licence_list, site).items()
    )
    return licences_text or "no licences of ours"
