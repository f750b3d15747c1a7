"""What is put into a job's pods out of our image: see `_worker_files`. Pure.

An init container copies it into a volume of the pod, and proves the pod's partition before that.
Workers of a job with a launcher run a door beside what they do, and know its launcher by the job's
secret; so they need neither an ssh server nor the API server.
"""

from __future__ import annotations

from typing import Any, Final

from podwright.hosts import (
    EXEC_VARIABLE,
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    WORKER_ROLE,
    WORKERS_VARIABLE,
)
from podwright.kubernetes._exec_rights import has_own_account, launcher_account
from podwright.kubernetes._ipu_job import IpuJob
from podwright.kubernetes._job_keys import secret_name
from podwright.kubernetes._reconcile import MakePod
from podwright.kubernetes._sightings import LAUNCHER, PREPARATION
from podwright.kubernetes._worker_files import MPI_HOSTS_VARIABLE, PLACE

_KEYS: Final = "/podwright-keys"
_TARGET: Final = "/podwright-files"
_FILES_VOLUME: Final = "podwright"
_KEYS_VOLUME: Final = "podwright-keys"


def equip(job: IpuJob, make: MakePod, spec: dict[str, Any], image: str, *, proves: bool) -> None:
    """Add it to the spec of a pod. proves: its partition's server can be asked from pods."""
    reaches = job.launcher is not None
    if not (reaches or proves):
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
    """The same launcher, with the right to call its workers through the API server."""
    spec.pop("serviceAccount", None)
    spec["serviceAccountName"] = launcher_account(job, make.instance)
    if has_own_account(job):  # which has no more than that right
        spec["automountServiceAccountToken"] = True
        if make.pull_secrets:
            spec.setdefault("imagePullSecrets", [{"name": name} for name in make.pull_secrets])
    first = spec["containers"][0]
    where = f"{job.key.namespace}/{job.template['spec']['containers'][0]['name']}"
    own = {"name": EXEC_VARIABLE, "value": where}
    first["env"] = [own, *(one for one in first["env"] if one["name"] != EXEC_VARIABLE)]


def _mpi_hosts(job: IpuJob, make: MakePod) -> str:
    """A launcher's workers, as a hostfile of Open MPI's has them."""
    return "".join(f"{name} slots={max(job.replicas, 1)}\n" for name, _ in make.workers)


def _preparation(image: str, first: dict[str, Any]) -> dict[str, Any]:
    """The init container. Where containers must have limits, it has those of the first."""
    resources = first.get("resources") or {}
    usual = {
        kind: {name: much for name, much in said.items() if name in ("cpu", "memory")}
        for kind, said in resources.items()
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
        },
    }


def _connect(job: IpuJob, make: MakePod, spec: dict[str, Any], first: dict[str, Any]) -> None:
    """Files and keys for the first container, and its command behind ours."""
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
    said = {KEYS_VARIABLE: _KEYS}
    if make.role == LAUNCHER:
        said[WORKERS_VARIABLE] = " ".join(f"{name}={at}" for name, at in make.workers)
        first["command"] = [f"{PLACE}/bin/launcher", *first["command"]]
    else:
        _open_door(first)
    ours = [{"name": name, "value": value} for name, value in said.items()]
    first["env"] = [*ours, *(one for one in first.get("env") or () if one["name"] not in said)]


def _open_door(first: dict[str, Any]) -> None:
    """A worker's own command runs beside its door; arguments without one are for a program that
    the image alone knows, and stay as they are: no launcher reaches such a worker."""
    command, arguments = first.get("command") or [], first.get("args") or []
    if command or not arguments:
        first.pop("args", None)
        first["command"] = [f"{PLACE}/bin/worker", *command, *arguments]
