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
PARTITION_ANNOTATION: Final = "podwright.graphcore.ai/partition"

#: Our own init container: its failure is not a program's.
PREPARATION_CONTAINER: Final = "podwright-preparation"

WORKER: Final = "worker"
LAUNCHER: Final = "launcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod of a job's. code: the first exit code that is not 0, of init containers too; None
    where no program ended so. lost: its node does not answer now. note: what Kubernetes says of it.
    partition: the one that it was made for. number: of a worker, over all instances. address: where
    it is reached; empty while it has none.
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


def read_pod(pod_object: Mapping[str, Any], lost_nodes: frozenset[str] = frozenset()) -> PodView:
    """A pod of a job's. lost_nodes: nodes that do not answer."""
    metadata, pod_status = pod_object["metadata"], pod_object.get("status") or {}
    labels, pod_spec = metadata.get("labels") or {}, pod_object.get("spec") or {}
    node_name = pod_spec.get("nodeName") or ""
    phase = pod_status.get("phase") or "Pending"
    is_live = phase not in ("Succeeded", "Failed")
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        role=labels.get(ROLE_LABEL, WORKER),
        instance=_label_number(labels.get(INSTANCE_LABEL)),
        attempt=_label_number(labels.get(ATTEMPT_LABEL)),
        phase=phase,
        code=_exit_code(pod_status),
        node=node_name,
        deleting=bool(metadata.get("deletionTimestamp")),
        lost=is_live and node_name in lost_nodes,
        note=_pod_problem(pod_status),
        partition=(metadata.get("annotations") or {}).get(PARTITION_ANNOTATION, ""),
        number=_label_number(metadata["name"].rpartition("-")[2]),
        address=pod_status.get("podIP") or "",
    )


def _label_number(label_text: Any) -> int:
    return int(label_text) if isinstance(label_text, str) and label_text.isdecimal() else 0


def _exit_code(pod_status: Mapping[str, Any]) -> int | None:
    for statuses_key in ("initContainerStatuses", "containerStatuses"):
        for container_status in pod_status.get(statuses_key) or ():
            state = (container_status.get("state") or {}).get("terminated")
            if (
                state
                and state.get("exitCode")
                and container_status.get("name") != PREPARATION_CONTAINER
            ):
                return int(state["exitCode"])
    return None


def _pod_problem(pod_status: Mapping[str, Any]) -> str:
    for container_status in pod_status.get("initContainerStatuses") or ():
        terminated_state = (container_status.get("state") or {}).get("terminated") or {}
        if container_status.get("name") == PREPARATION_CONTAINER and terminated_state.get(
            "exitCode"
        ):
            return str(terminated_state.get("message") or "it could not be prepared")[:300]
    if pod_status.get("reason") or pod_status.get("message"):
        reason_parts = [str(pod_status.get(name) or "") for name in ("reason", "message")]
        return ": ".join(part for part in reason_parts if part)[:300]
    for statuses_key in ("initContainerStatuses", "containerStatuses"):
        for container_status in pod_status.get(statuses_key) or ():
            waiting_state = (container_status.get("state") or {}).get("waiting") or {}
            if waiting_state.get("reason") and waiting_state["reason"] not in _USUAL_WAIT_REASONS:
                return f"{waiting_state['reason']}: {waiting_state.get('message') or ''}".rstrip(
                    ": "
                )[:300]
    for condition in pod_status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason')}: {condition.get('message') or ''}".rstrip(": ")[:300]
    return ""


_USUAL_WAIT_REASONS: Final = ("ContainerCreating", "PodInitializing")
