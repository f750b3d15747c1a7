"""A job's status, in the fields of chart 1.2.0. Pure.

It is made anew from what there is, and written only where something in it changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from podwright.guests.kubernetes.job._ipu_job import IpuJob, stamp
from podwright.guests.kubernetes.job._observed_pods import LAUNCHER, WORKER, Holds, PodView

#: Conditions, one of each at most, in the order in which they are listed. Those of Graphcore's
#: operator have the name of their state; Queued, PartitionReady and Succeeded are ours.
_CONDITION_TYPES: Final = (
    *("Queued", "PartitionReady", "Running", "Restarting", "Suspended"),
    *("Completed", "Succeeded", "Failed"),
)
_MAX_MESSAGE_CHARS: Final = 1000  #: characters of a message


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
    status_words: StatusWords,
) -> dict[str, Any] | None:
    """The status from here on; None where nothing in it changed."""
    old_status = dict(job.status)
    worker_pods = [pod for pod in pods if pod.attempt == job.attempt and pod.role == WORKER]
    new_status: dict[str, Any] = {
        "launcherStatus": status_words.state,
        "lastMessage": status_words.message[:_MAX_MESSAGE_CHARS],
        "desiredReplicas": job.instances,
        "currentReplicas": 0 if status_words.over else _running_instance_count(job, pods),
        "iPUPartitionCreated": bool(holdings)
        and not status_words.over
        and all(
            instance in holdings and holdings[instance].state == "READY"
            for instance in range(job.instances)
        ),
        "restartCount": job.attempt + status_words.restart,
        "workersStatus": {
            "active": sum(pod.live and pod.phase == "Running" for pod in worker_pods),
            "failed": sum(pod.phase == "Failed" for pod in worker_pods),
            "succeeded": sum(pod.phase == "Succeeded" for pod in worker_pods),
        },
    }
    new_status["conditions"] = _build_conditions(
        job, status_words, now, ready=new_status["iPUPartitionCreated"]
    )
    if job.generation and (not old_status or "observedGeneration" in old_status):
        # The definition of an older build drops the field. A status that differed by it alone
        # would be written for ever.
        new_status["observedGeneration"] = job.generation
    for field_name in ("startTime", "completionTime"):
        if old_status.get(field_name):
            new_status[field_name] = old_status[field_name]
    if status_words.started and "startTime" not in new_status:
        new_status["startTime"] = stamp(now)
    if status_words.over and "completionTime" not in new_status:
        new_status["completionTime"] = stamp(now)
    if new_status == {
        name: field_value for name, field_value in old_status.items() if name != "lastReconcileTime"
    }:
        return None
    return new_status | {"lastReconcileTime": stamp(now)}


def _running_instance_count(job: IpuJob, pods: Sequence[PodView]) -> int:
    """Instances whose programs run."""
    role = LAUNCHER if job.launcher is not None else WORKER
    pods_per_instance = 1 if role == LAUNCHER else job.workers
    running_instances = [
        pod.instance
        for pod in pods
        if pod.role == role and pod.attempt == job.attempt and pod.phase == "Running"
    ]
    return sum(
        running_instances.count(instance) == pods_per_instance for instance in range(job.instances)
    )


def _build_conditions(
    job: IpuJob, status_words: StatusWords, now: float, *, ready: bool
) -> list[dict[str, Any]]:
    """The conditions that have been true once. ready: whether all partitions are there."""
    true_types = {
        status_words.state,
        "Queued" if status_words.state == "Pending" and status_words.reason == "Waiting" else "",
        "PartitionReady" if ready else "",
        "Succeeded" if status_words.state == "Completed" else "",
    }
    known_conditions = {
        str(condition.get("type")): dict(condition)
        for condition in job.status.get("conditions") or ()
    }
    conditions = []
    for condition_type in _CONDITION_TYPES:
        current_condition = known_conditions.get(condition_type)
        status_text = "True" if condition_type in true_types else "False"
        if current_condition is None and status_text == "False":
            continue
        if current_condition is None or current_condition.get("status") != status_text:
            timestamp = stamp(now)
            current_condition = {
                "type": condition_type,
                "status": status_text,
                "reason": (status_words.reason or status_words.state)
                if status_text == "True"
                else status_words.state,
                "message": status_words.message[:_MAX_MESSAGE_CHARS],
                "lastTransitionTime": timestamp,
                "lastUpdateTime": timestamp,
            }
        conditions.append(current_condition)
    return conditions
