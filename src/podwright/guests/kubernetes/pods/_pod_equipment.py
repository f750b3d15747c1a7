"""Adds files of our image to a job's pods (see `_worker_files`). Pure.

An init container copies the files into a volume of the pod. Before that it proves the pod's
partition. Workers of a job with a launcher run a door beside their own program, and recognise their
launcher by the job's secret. So they need neither an ssh server nor the API server.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._job_keys import secret_name
from podwright.guests.kubernetes.job._reconcile import MakePod
from podwright.guests.kubernetes.job._sightings import LAUNCHER, PREPARATION
from podwright.guests.kubernetes.pods._exec_rights import has_own_account, launcher_account
from podwright.guests.kubernetes.pods._worker_files import MPI_HOSTS_VARIABLE, PLACE
from podwright.hosts import (
    EXEC_VARIABLE,
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    WORKER_ROLE,
    WORKERS_VARIABLE,
)

_KEYS: Final = "/podwright-keys"
_TARGET: Final = "/podwright-files"
_FILES_VOLUME: Final = "podwright"
_KEYS_VOLUME: Final = "podwright-keys"


def equip(
    job: IpuJob, make: MakePod, spec: dict[str, Any], image: str, *, prove_partition: bool
) -> None:
    """Add the equipment to the spec of a pod.

    prove_partition: whether pods can ask the server about the pod's partition.
    """
    reaches = job.launcher is not None
    if not (reaches or prove_partition):
        return
    first = spec["containers"][0]
    prepares = _preparation(image, first)
    if reaches:
        prepares["command"].append(_TARGET)
        if make.role == LAUNCHER:
            prepares["env"] = [{"name": MPI_HOSTS_VARIABLE, "value": _mpi_hosts(job, make)}]
        prepares["volumeMounts"] = [{"name": _FILES_VOLUME, "mountPath": _TARGET}]
        _connect(job, make, spec, first)
    spec["initContainers"] = [prepares, *(spec.get("initContainers") or ())]


def let_exec(job: IpuJob, make: MakePod, spec: dict[str, Any]) -> None:
    """Give a launcher's pod the right to call its workers through the API server."""
    spec.pop("serviceAccount", None)
    spec["serviceAccountName"] = launcher_account(job, make.instance)
    if has_own_account(job):  # that account has no other right
        spec["automountServiceAccountToken"] = True
        if make.pull_secrets:
            spec.setdefault("imagePullSecrets", [{"name": name} for name in make.pull_secrets])
    first = spec["containers"][0]
    where = f"{job.key.namespace}/{job.template['spec']['containers'][0]['name']}"
    own = {"name": EXEC_VARIABLE, "value": where}
    first["env"] = [
        own,
        *(variable for variable in first["env"] if variable["name"] != EXEC_VARIABLE),
    ]


def _mpi_hosts(job: IpuJob, make: MakePod) -> str:
    """Return a launcher's workers as a hostfile for Open MPI."""
    return "".join(f"{name} slots={max(job.replicas, 1)}\n" for name, _ in make.workers)


def _preparation(image: str, first: dict[str, Any]) -> dict[str, Any]:
    """Return the init container. Its limits are those of the first container, for clusters where
    containers must have some.
    """
    resources = first.get("resources") or {}
    usual = {
        kind: {name: much for name, much in quantity.items() if name in ("cpu", "memory")}
        for kind, quantity in resources.items()
        if kind in ("limits", "requests")
    }
    return {
        "name": PREPARATION,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [f"{PLACE}/bin/prepare"],
        "resources": usual,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _connect(job: IpuJob, make: MakePod, spec: dict[str, Any], first: dict[str, Any]) -> None:
    """Give the first container files and keys, and run its command by ours."""
    role, other = WORKER_ROLE, LAUNCHER_ROLE
    if make.role == LAUNCHER:
        role, other = other, role
    files = [f"{role}.crt", f"{role}.key", f"{other}.crt"]
    items = [{"key": name, "path": name} for name in files]
    secret = {"secretName": secret_name(job.key), "items": items, "defaultMode": 0o444}
    spec["volumes"] = [
        *(spec.get("volumes") or ()),
        {"name": _FILES_VOLUME, "emptyDir": {}},
        {"name": _KEYS_VOLUME, "secret": secret},
    ]
    first["volumeMounts"] = [
        *(first.get("volumeMounts") or ()),
        {"name": _FILES_VOLUME, "mountPath": PLACE, "readOnly": True},
        {"name": _KEYS_VOLUME, "mountPath": _KEYS, "readOnly": True},
    ]
    variables = {KEYS_VARIABLE: _KEYS}
    if make.role == LAUNCHER:
        variables[WORKERS_VARIABLE] = " ".join(
            f"{name}={address}" for name, address in make.workers
        )
        first["command"] = [f"{PLACE}/bin/launcher", *first["command"]]
    else:
        _open_door(first)
    ours = [{"name": name, "value": value} for name, value in variables.items()]
    first["env"] = [
        *ours,
        *(variable for variable in first.get("env") or () if variable["name"] not in variables),
    ]


def _open_door(first: dict[str, Any]) -> None:
    """Run a worker's own command beside its door.

    A container with arguments but no command stays as it is, because only the image knows its
    program. No launcher reaches such a worker.
    """
    command, arguments = first.get("command") or [], first.get("args") or []
    if command or not arguments:
        first.pop("args", None)
        first["command"] = [f"{PLACE}/bin/worker", *command, *arguments]
