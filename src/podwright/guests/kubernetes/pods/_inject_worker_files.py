"""Adds files of our image to a job's pods (see `_worker_files`). Pure.

An init container copies the files into a volume of the pod. Before that it proves the pod's
partition. Workers of a job with a launcher run a door beside their own program, and recognise their
launcher by the job's secret. So they need neither an ssh server nor the API server.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._job_secret import secret_name
from podwright.guests.kubernetes.job._observed_pods import LAUNCHER, PREPARATION_CONTAINER
from podwright.guests.kubernetes.job._reconcile import MakePod
from podwright.guests.kubernetes.pods._worker_files import MPI_HOSTS_VARIABLE, PLACE
from podwright.hosts import (
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    WORKER_ROLE,
    WORKERS_VARIABLE,
)

_KEYS_FOLDER: Final = "/podwright-keys"
_FILES_FOLDER: Final = "/podwright-files"
_FILES_VOLUME: Final = "podwright"
_KEYS_VOLUME: Final = "podwright-keys"


def equip_pod(
    job: IpuJob, new_pod: MakePod, pod_spec: dict[str, Any], image: str, *, prove_partition: bool
) -> None:
    """Add the equipment to the spec of a pod.

    prove_partition: whether pods can ask the server about the pod's partition.
    """
    has_launcher = job.launcher is not None
    if not (has_launcher or prove_partition):
        return
    first_container = pod_spec["containers"][0]
    init_container = _init_container(image, first_container)
    if has_launcher:
        init_container["command"].append(_FILES_FOLDER)
        if new_pod.role == LAUNCHER:
            init_container["env"] = [
                {"name": MPI_HOSTS_VARIABLE, "value": _mpi_hosts(job, new_pod)}
            ]
        init_container["volumeMounts"] = [{"name": _FILES_VOLUME, "mountPath": _FILES_FOLDER}]
        _equip_container(job, new_pod, pod_spec, first_container)
    pod_spec["initContainers"] = [init_container, *(pod_spec.get("initContainers") or ())]


def _mpi_hosts(job: IpuJob, new_pod: MakePod) -> str:
    """Return a launcher's workers as a hostfile for Open MPI."""
    return "".join(f"{name} slots={max(job.replicas, 1)}\n" for name, _ in new_pod.workers)


def _init_container(image: str, first_container: dict[str, Any]) -> dict[str, Any]:
    """Return the init container. Its limits are those of the first container, for clusters where
    containers must have some.
    """
    resources = first_container.get("resources") or {}
    limited_resources = {
        kind: {name: amount for name, amount in amounts.items() if name in ("cpu", "memory")}
        for kind, amounts in resources.items()
        if kind in ("limits", "requests")
    }
    return {
        "name": PREPARATION_CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [f"{PLACE}/bin/prepare"],
        "resources": limited_resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _equip_container(
    job: IpuJob, new_pod: MakePod, pod_spec: dict[str, Any], first_container: dict[str, Any]
) -> None:
    """Give the first container files and keys, and run its command by ours."""
    role, peer_role = WORKER_ROLE, LAUNCHER_ROLE
    if new_pod.role == LAUNCHER:
        role, peer_role = peer_role, role
    key_files = [f"{role}.crt", f"{role}.key", f"{peer_role}.crt"]
    secret_items = [{"key": name, "path": name} for name in key_files]
    secret_source = {
        "secretName": secret_name(job.key),
        "items": secret_items,
        "defaultMode": 0o444,
    }
    pod_spec["volumes"] = [
        *(pod_spec.get("volumes") or ()),
        {"name": _FILES_VOLUME, "emptyDir": {}},
        {"name": _KEYS_VOLUME, "secret": secret_source},
    ]
    first_container["volumeMounts"] = [
        *(first_container.get("volumeMounts") or ()),
        {"name": _FILES_VOLUME, "mountPath": PLACE, "readOnly": True},
        {"name": _KEYS_VOLUME, "mountPath": _KEYS_FOLDER, "readOnly": True},
    ]
    variables = {KEYS_VARIABLE: _KEYS_FOLDER}
    if new_pod.role == LAUNCHER:
        variables[WORKERS_VARIABLE] = " ".join(
            f"{name}={address}" for name, address in new_pod.workers
        )
        first_container["command"] = [f"{PLACE}/bin/launcher", *first_container["command"]]
    else:
        _add_worker_door(first_container)
    own_variables = [{"name": name, "value": value} for name, value in variables.items()]
    first_container["env"] = [
        *own_variables,
        *(
            variable
            for variable in first_container.get("env") or ()
            if variable["name"] not in variables
        ),
    ]


def _add_worker_door(first_container: dict[str, Any]) -> None:
    """Run a worker's own command beside its door.

    A container with arguments but no command stays as it is, because only the image knows its
    program. No launcher reaches such a worker.
    """
    command, arguments = first_container.get("command") or [], first_container.get("args") or []
    if command or not arguments:
        first_container.pop("args", None)
        first_container["command"] = [f"{PLACE}/bin/worker", *command, *arguments]
