"""A job's status, in the fields of chart 1.2.0. Pure.

It is made anew from what there is, and written only where something in it changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from podwright.kubernetes._ipu_job import IpuJob, stamp
from podwright.kubernetes._sightings import LAUNCHER, WORKER, Holds, PodView

#: Conditions, one of each at most; the state that each stands for.
_CONDITIONS: Final = ("Running", "Restarting", "Suspended", "Completed", "Failed")
_MOST: Final = 1000  #: characters of a message


@dataclass(frozen=True, slots=True)
class StatusWords:
    """What is said of a job. over: for good. begun: its pods are made. restart: once more."""

    state: str
    message: str
    reason: str = ""
    over: bool = False
    begun: bool = False
    restart: bool = False


def status_of(
    job: IpuJob,
    pods: Sequence[PodView],
    held: Mapping[int, Holds],
    now: float,
    said: StatusWords,
) -> dict[str, Any] | None:
    """The status from here on; None where nothing in it changed."""
    old = dict(job.status)
    mine = [pod for pod in pods if pod.attempt == job.attempt and pod.role == WORKER]
    new: dict[str, Any] = {
        "launcherStatus": said.state,
        "lastMessage": said.message[:_MOST],
        "desiredReplicas": job.instances,
        "currentReplicas": 0 if said.over else _current(job, pods),
        "iPUPartitionCreated": bool(held)
        and not said.over
        and all(i in held and held[i].state == "READY" for i in range(job.instances)),
        "restartCount": job.attempt + said.restart,
        "workersStatus": {
            "active": sum(pod.live and pod.phase == "Running" for pod in mine),
            "failed": sum(pod.phase == "Failed" for pod in mine),
            "succeeded": sum(pod.phase == "Succeeded" for pod in mine),
        },
    }
    new["conditions"] = _conditions(job, said, now)
    for name in ("startTime", "completionTime"):
        if old.get(name):
            new[name] = old[name]
    if said.begun and "startTime" not in new:
        new["startTime"] = stamp(now)
    if said.over and "completionTime" not in new:
        new["completionTime"] = stamp(now)
    if new == {name: value for name, value in old.items() if name != "lastReconcileTime"}:
        return None
    return new | {"lastReconcileTime": stamp(now)}


def _current(job: IpuJob, pods: Sequence[PodView]) -> int:
    """Instances whose programs run."""
    role = LAUNCHER if job.launcher is not None else WORKER
    count = 1 if role == LAUNCHER else job.workers
    running = [
        pod.instance
        for pod in pods
        if pod.role == role and pod.attempt == job.attempt and pod.phase == "Running"
    ]
    return sum(running.count(i) == count for i in range(job.instances))


def _conditions(job: IpuJob, said: StatusWords, now: float) -> list[dict[str, Any]]:
    known = {str(one.get("type")): dict(one) for one in job.status.get("conditions") or ()}
    out = []
    for kind in _CONDITIONS:
        old = known.get(kind)
        true = "True" if said.state == kind else "False"
        if old is None and true == "False":
            continue
        if old is None or old.get("status") != true:
            at = stamp(now)
            old = {
                "type": kind,
                "status": true,
                "reason": (said.reason or said.state) if true == "True" else said.state,
                "message": said.message[:_MOST],
                "lastTransitionTime": at,
                "lastUpdateTime": at,
            }
        out.append(old)
    return out
