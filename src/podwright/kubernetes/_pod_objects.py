"""The pods of a job, as objects for the API server. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podwright.hosts import WORKER_VARIABLE
from podwright.kubernetes._crd import API_VERSION, KIND
from podwright.kubernetes._ipu_job import IpuJob
from podwright.kubernetes._pod_equipment import equip, let_exec
from podwright.kubernetes._reconcile import MakePod, pod_name
from podwright.kubernetes._sightings import (
    ATTEMPT_LABEL,
    INSTANCE_LABEL,
    LAUNCHER,
    PARTITION_NOTE,
    ROLE_LABEL,
    UID_LABEL,
    WORKER,
)

#: How long a sleeping worker sleeps at most, in seconds: the job ends it.
_SLEEP: Final = 2147483647


class PodOptions(NamedTuple):
    """How a site wants pods. host_network: as real IPUs need it, which are reached over the
    node's own network. launcher_image: empty: the workers' own. image: ours, out of which launcher
    and relay are put into pods; empty: nothing is. exec_fallback: launchers may call their workers
    through the API server where they cannot connect to them; that needs our image.
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
    """A worker or a launcher. environment: where its devices are. selector: of its nodes."""
    meta = job.template.get("metadata") or {}
    spec = copy.deepcopy(dict(job.template["spec"]))
    spec.pop("ephemeralContainers", None)
    spec["restartPolicy"] = "Never"  # a restart resets the partition first: the operator's matter
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
        proves = "IPUOF_VIPU_API_HOST" in environment
        equip(job, make, spec, options.image, proves=proves)
        if options.exec_fallback and make.role == LAUNCHER:
            let_exec(job, make, spec)
    said, name = dict(environment), pod_name(job, make.role, make.instance, make.number)
    if make.role == WORKER:
        said[WORKER_VARIABLE] = name
    if job.workers > 1 and make.role == WORKER:
        said["IPUOF_VIPU_API_GCD_ID"] = str(make.number % job.workers)
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        container["env"] = _with(container.get("env") or (), said)
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
    """What makes Kubernetes remove an object once its job is gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.key.name,
        "uid": job.key.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _with(env: Any, said: Mapping[str, str]) -> list[dict[str, Any]]:
    """Ours first, so that others may refer to them; nobody's replaces them."""
    ours = [{"name": name, "value": value} for name, value in said.items()]
    return ours + [dict(one) for one in env if one["name"] not in said]


def _sleep(spec: dict[str, Any]) -> None:
    """A worker that only waits: somebody else starts programs in it. One that says itself what it
    does, does that."""
    first = spec["containers"][0]
    if not first.get("command") and not first.get("args"):
        first["command"] = ["sleep", str(_SLEEP)]


def _launch(job: IpuJob, spec: dict[str, Any], options: PodOptions) -> None:
    """The launcher: one container, of the workers' image and with their files."""
    assert job.launcher is not None
    first = dict(spec["containers"][0])
    for name in ("args", "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        first.pop(name, None)
    first["name"] = "launcher"
    first["command"] = list(job.launcher["command"])
    if options.launcher_image:
        first["image"] = options.launcher_image
    own = list(job.launcher.get("env") or ())
    names = {one["name"] for one in own}
    first["env"] = [one for one in first.get("env") or () if one["name"] not in names] + own
    spec["containers"] = [first]
