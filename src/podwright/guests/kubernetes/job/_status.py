"""A job's status, in the fields of chart 1.2.0. Pure.

It is made anew from what there is, and written only where something in it changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from podwright.guests.kubernetes.job._ipu_job import IpuJob, stamp
from podwright.guests.kubernetes.job._sightings import LAUNCHER, WORKER, Holds, PodView

#: Conditions, one of each at most, in the order in which they are listed. Those of Graphcore's
#: operator have the name of their state; Queued, PartitionReady and Succeeded are ours.
_CONDITIONS: Final = (
    *("Queued", "PartitionReady", "Running", "Restarting", "Suspended"),
    *("Completed", "Succeeded", "Failed"),
)
_MOST: Final = 1000  #: characters of a message


@dataclass(frozen=True, slots=True)
class StatusWords:
    """What is said of a job. over: for good. started: its pods are made. restart: once more."""

    state: str
    message: str
    reason: str = ""
    over: bool = False
    started: bool = False
    restart: bool = False


def status_of(
    job: IpuJob,
    pods: Sequence[PodView],
    holdings: Mapping[int, Holds],
    now: float,
    words: StatusWords,
) -> dict[str, Any] | None:
    """The status from here on; None where nothing in it changed."""
    old = dict(job.status)
    workers = [pod for pod in pods if pod.attempt == job.attempt and pod.role == WORKER]
    new: dict[str, Any] = {
        "launcherStatus": words.state,
        "lastMessage": words.message[:_MOST],
        "desiredReplicas": job.instances,
        "currentReplicas": 0 if words.over else _current(job, pods),
        "iPUPartitionCreated": bool(holdings)
        and not words.over
        and all(i in holdings and holdings[i].state == "READY" for i in range(job.instances)),
        "restartCount": job.attempt + words.restart,
        "workersStatus": {
            "active": sum(pod.live and pod.phase == "Running" for pod in workers),
            "failed": sum(pod.phase == "Failed" for pod in workers),
            "succeeded": sum(pod.phase == "Succeeded" for pod in workers),
        },
    }
    new["conditions"] = _conditions(job, words, now, ready=new["iPUPartitionCreated"])
    if job.generation and (not old or "observedGeneration" in old):
        # The definition of an older build drops the field. A status that differed by it alone
        # would be written for ever.
        new["observedGeneration"] = job.generation
    for name in ("startTime", "completionTime"):
        if old.get(name):
            new[name] = old[name]
    if words.started and "startTime" not in new:
        new["startTime"] = stamp(now)
    if words.over and "completionTime" not in new:
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


def _conditions(
    job: IpuJob, words: StatusWords, now: float, *, ready: bool
) -> list[dict[str, Any]]:
    """The conditions that have been true once. ready: whether all partitions are there."""
    true_kinds = {
        words.state,
        "Queued" if words.state == "Pending" and words.reason == "Waiting" else "",
        "PartitionReady" if ready else "",
        "Succeeded" if words.state == "Completed" else "",
    }
    known = {
        str(condition.get("type")): dict(condition)
        for condition in job.status.get("conditions") or ()
    }
    out = []
    for kind in _CONDITIONS:
        old = known.get(kind)
        true = "True" if kind in true_kinds else "False"
        if old is None and true == "False":
            continue
        if old is None or old.get("status") != true:
            timestamp = stamp(now)
            old = {
                "type": kind,
                "status": true,
                "reason": (words.reason or words.state) if true == "True" else words.state,
                "message": words.message[:_MOST],
                "lastTransitionTime": timestamp,
                "lastUpdateTime": timestamp,
            }
        out.append(old)
    return out
