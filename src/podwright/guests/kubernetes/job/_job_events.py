"""The Events of a job, by which `kubectl describe` tells what became of it. Pure.

One is made for each condition that becomes true, and for a job that is Invalid. Its name follows
from the version of the job that the status was written to. So two operators that write the same
change make one Event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from podwright.guests.kubernetes.job._crd import API_VERSION, JOB_KIND
from podwright.guests.kubernetes.job._ipu_job import IpuJob, stamp

_EVENT_COMPONENT: Final = "podwright-operator"
_WARNING_CONDITIONS: Final = frozenset({"Failed", "Invalid", "Restarting"})
#: What another condition, Completed, says too.
_REDUNDANT_CONDITIONS: Final = frozenset({"Succeeded"})


def events_of(job: IpuJob, new_status: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """Return the Events of a job's new status. now: seconds since 1970."""
    old_messages, new_messages = _true_conditions(job.status), _true_conditions(new_status)
    return [
        _build_event(job, condition_type, message, now)
        for condition_type, message in new_messages.items()
        if condition_type not in old_messages and condition_type not in _REDUNDANT_CONDITIONS
    ]


def _true_conditions(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the messages of what is true, by kind, in the order of the conditions."""
    messages_by_type = {
        str(condition["type"]): str(condition.get("message") or "")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    if status.get("launcherStatus") == "Invalid":
        messages_by_type["Invalid"] = str(status.get("lastMessage") or "")
    return messages_by_type


def _build_event(job: IpuJob, condition_type: str, message: str, now: float) -> dict[str, Any]:
    namespace, job_name, uid = job.key
    timestamp = stamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{job_name[:200]}.{uid[:8]}.{job.version}.{condition_type.lower()}",
            "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": JOB_KIND,
            "namespace": namespace,
            "name": job_name,
            "uid": uid,
        },
        "type": "Warning" if condition_type in _WARNING_CONDITIONS else "Normal",
        "reason": condition_type,
        "message": message,
        "source": {"component": _EVENT_COMPONENT},
        "reportingComponent": _EVENT_COMPONENT,
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }
