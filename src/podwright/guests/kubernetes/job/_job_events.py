"""The Events of a job, by which `kubectl describe` tells what became of it. Pure.

One is made for each condition that becomes true, and for a job that is Invalid. Its name follows
from the version of the job that the status was written to. So two operators that write the same
change make one Event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from podwright.guests.kubernetes.job._crd import API_VERSION, KIND
from podwright.guests.kubernetes.job._ipu_job import IpuJob, stamp

_COMPONENT: Final = "podwright-operator"
_WARNINGS: Final = frozenset({"Failed", "Invalid", "Restarting"})
#: What another condition, Completed, says too.
_SILENT: Final = frozenset({"Succeeded"})


def events_of(job: IpuJob, status: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """Return the Events of a job's new status. now: seconds since 1970."""
    before, after = _true(job.status), _true(status)
    return [
        _event(job, kind, message, now)
        for kind, message in after.items()
        if kind not in before and kind not in _SILENT
    ]


def _true(status: Mapping[str, Any]) -> dict[str, str]:
    """Return the messages of what is true, by kind, in the order of the conditions."""
    out = {
        str(condition["type"]): str(condition.get("message") or "")
        for condition in status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    if status.get("launcherStatus") == "Invalid":
        out["Invalid"] = str(status.get("lastMessage") or "")
    return out


def _event(job: IpuJob, kind: str, message: str, now: float) -> dict[str, Any]:
    namespace, name, uid = job.key
    timestamp = stamp(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{name[:200]}.{uid[:8]}.{job.version}.{kind.lower()}",
            "namespace": namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": "Warning" if kind in _WARNINGS else "Normal",
        "reason": kind,
        "message": message,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
    }
