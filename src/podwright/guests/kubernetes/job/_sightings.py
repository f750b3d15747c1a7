"""What the operator sees of a job's pods and of its partitions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

#: On every pod of a job's: whose it is, what it does, for which instance, in which attempt.
UID_LABEL: Final = "podwright.graphcore.ai/job-uid"
ROLE_LABEL: Final = "podwright.graphcore.ai/role"
INSTANCE_LABEL: Final = "podwright.graphcore.ai/instance"
ATTEMPT_LABEL: Final = "podwright.graphcore.ai/attempt"
PARTITION_NOTE: Final = "podwright.graphcore.ai/partition"

#: Our own init container: its failure is not a program's.
PREPARATION: Final = "podwright-preparation"

WORKER: Final = "worker"
LAUNCHER: Final = "launcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod of a job's. code: the first exit code that is not 0, of init containers too; None
    where no program ended so. lost: its node does not answer. note: what Kubernetes says of it.
    partition: the one that it was made for. number: of a worker, over all instances. address: where
    it is reached; empty while it has none. pull_secrets: what its images are fetched with.
    """

    name: str
    uid: str
    role: str
    instance: int
    attempt: int
    phase: str = "Pending"
    code: int | None = None
    node: str = ""
    deleting: bool = False
    lost: bool = False
    note: str = ""
    partition: str = ""
    number: int = 0
    address: str = ""
    pull_secrets: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """May a program of its run, now or later?"""
        return self.phase not in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """A partition of a job's. state: MAKING, READY, ERROR or GONE. problem: why it is in error.
    worn: devices of its are on a machine that is drained or down, so it is better given back."""

    instance: int
    name: str
    state: str
    problem: str = ""
    worn: str = ""


def read_pod(item: Mapping[str, Any], lost: frozenset[str] = frozenset()) -> PodView:
    """A pod of a job's. lost: nodes that do not answer."""
    meta, status = item["metadata"], item.get("status") or {}
    labels, spec = meta.get("labels") or {}, item.get("spec") or {}
    node = spec.get("nodeName") or ""
    phase = status.get("phase") or "Pending"
    live = phase not in ("Succeeded", "Failed")
    return PodView(
        name=meta["name"],
        uid=meta["uid"],
        role=labels.get(ROLE_LABEL, WORKER),
        instance=_count(labels.get(INSTANCE_LABEL)),
        attempt=_count(labels.get(ATTEMPT_LABEL)),
        phase=phase,
        code=_code(status),
        node=node,
        deleting=bool(meta.get("deletionTimestamp")),
        lost=live and node in lost,
        note=_note(status),
        partition=(meta.get("annotations") or {}).get(PARTITION_NOTE, ""),
        number=_count(meta["name"].rpartition("-")[2]),
        address=status.get("podIP") or "",
        pull_secrets=tuple(secret["name"] for secret in spec.get("imagePullSecrets") or ()),
    )


def _count(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


def _code(status: Mapping[str, Any]) -> int | None:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            terminated = (container.get("state") or {}).get("terminated")
            if terminated and terminated.get("exitCode") and container.get("name") != PREPARATION:
                return int(terminated["exitCode"])
    return None


def _note(status: Mapping[str, Any]) -> str:
    for container in status.get("initContainerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated") or {}
        if container.get("name") == PREPARATION and terminated.get("exitCode"):
            return str(terminated.get("message") or "it could not be prepared")[:300]
    if status.get("reason") or status.get("message"):
        words = [str(status.get(name) or "") for name in ("reason", "message")]
        return ": ".join(word for word in words if word)[:300]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waits = (container.get("state") or {}).get("waiting") or {}
            if waits.get("reason") and waits["reason"] not in _USUAL:
                return f"{waits['reason']}: {waits.get('message') or ''}".rstrip(": ")[:300]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message') or ''}".rstrip(": ")[:300]
    return ""


_USUAL: Final = ("ContainerCreating", "PodInitializing")
