"""The pods of a job, as objects for the API server. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podwright.guests.kubernetes.job._crd import API_VERSION, KIND
from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._reconcile import MakePod, pod_name
from podwright.guests.kubernetes.job._sightings import (
    ATTEMPT_LABEL,
    INSTANCE_LABEL,
    LAUNCHER,
    PARTITION_NOTE,
    ROLE_LABEL,
    UID_LABEL,
    WORKER,
)
from podwright.guests.kubernetes.pods._pod_equipment import equip, let_exec
from podwright.hosts import WORKER_VARIABLE

#: The longest sleep of a worker that only waits, in seconds. The job ends it before that.
_SLEEP: Final = 2147483647


class PodOptions(NamedTuple):
    """How a site wants pods.

    host_network: pods use the node's own network, as real IPUs need it. launcher_image: empty: the
    workers' own image. image: our own image, from which launcher and relay are copied into pods;
    empty: nothing is copied. exec_fallback: launchers may call their workers through the API server
    where they cannot connect to them; this needs our image.
    """

    host_network: bool = True
    launcher_image: str = ""
    image: str = ""
    exec_fallback: bool = False


def build_pod(
    job: IpuJob,
    make: MakePod,
    environment: Mapping[str, str],
    selector: Mapping[str, str],
    options: PodOptions,
) -> dict[str, Any]:
    """Return the object of a worker or a launcher.

    environment: the variables that say where its devices are. selector: the labels of its nodes.
    """
    meta = job.template.get("metadata") or {}
    spec = copy.deepcopy(dict(job.template["spec"]))
    spec.pop("ephemeralContainers", None)
    spec["restartPolicy"] = "Never"  # the operator restarts it, after it has reset the partition
    if selector:
        spec["nodeSelector"] = dict(spec.get("nodeSelector") or {}) | dict(selector)
    if options.host_network:
        spec["hostNetwork"] = True
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    if make.role == LAUNCHER:
        _launch(job, spec, options)
    elif job.ttl or (job.launcher is not None and not options.image):
        _sleep(spec)
    if options.image:
        prove_partition = "IPUOF_VIPU_API_HOST" in environment
        equip(job, make, spec, options.image, prove_partition=prove_partition)
        if options.exec_fallback and make.role == LAUNCHER:
            let_exec(job, make, spec)
    variables, name = dict(environment), pod_name(job, make.role, make.instance, make.number)
    if make.role == WORKER:
        variables[WORKER_VARIABLE] = name
    if job.workers > 1 and make.role == WORKER:
        variables["IPUOF_VIPU_API_GCD_ID"] = str(make.number % job.workers)
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        container["env"] = _with(container.get("env") or (), variables)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job.key.namespace,
            "labels": dict(meta.get("labels") or {})
            | {
                UID_LABEL: job.key.uid,
                ROLE_LABEL: make.role,
                INSTANCE_LABEL: str(make.instance),
                ATTEMPT_LABEL: str(job.attempt),
            },
            "annotations": dict(meta.get("annotations") or {}) | {PARTITION_NOTE: make.partition},
            "ownerReferences": [owned_by(job)],
        },
        "spec": spec,
    }


def owned_by(job: IpuJob) -> dict[str, Any]:
    """Return the owner reference that has Kubernetes remove an object once its job is gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.key.name,
        "uid": job.key.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _with(env: Any, variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the variables with ours first, so that others may refer to them. Others of the same
    names are dropped.
    """
    ours = [{"name": name, "value": value} for name, value in variables.items()]
    return ours + [dict(entry) for entry in env if entry["name"] not in variables]


def _sleep(spec: dict[str, Any]) -> None:
    """Let a worker without a command or arguments sleep, because a launcher starts programs in
    it.
    """
    first = spec["containers"][0]
    if not first.get("command") and not first.get("args"):
        first["command"] = ["sleep", str(_SLEEP)]


def _launch(job: IpuJob, spec: dict[str, Any], options: PodOptions) -> None:
    """Turn the spec into a launcher's: one container of the workers' image, with their files."""
    assert job.launcher is not None
    first = dict(spec["containers"][0])
    for name in ("args", "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        first.pop(name, None)
    first["name"] = "launcher"
    first["command"] = list(job.launcher["command"])
    if options.launcher_image:
        first["image"] = options.launcher_image
    own = list(job.launcher.get("env") or ())
    names = {variable["name"] for variable in own}
    first["env"] = [
        variable for variable in first.get("env") or () if variable["name"] not in names
    ] + own
    spec["containers"] = [first]
