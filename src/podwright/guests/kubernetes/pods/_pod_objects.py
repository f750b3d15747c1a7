"""The pods of a job, as objects for the API server. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podwright.guests.kubernetes.job._crd import API_VERSION, JOB_KIND
from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._observed_pods import (
    ATTEMPT_LABEL,
    INSTANCE_LABEL,
    LAUNCHER,
    PARTITION_ANNOTATION,
    ROLE_LABEL,
    UID_LABEL,
    WORKER,
)
from podwright.guests.kubernetes.job._reconcile import MakePod, pod_name
from podwright.guests.kubernetes.pods._inject_worker_files import equip_pod
from podwright.hosts import WORKER_VARIABLE

#: The longest sleep of a worker that only waits, in seconds. The job ends it before that.
_SLEEP_SECONDS: Final = 2147483647


class PodOptions(NamedTuple):
    """How a site wants pods.

    host_network: pods use the node's own network, as real IPUs need it. launcher_image: empty: the
    workers' own image. image: our own image, from which launcher and relay are copied into pods;
    empty: nothing is copied.
    """

    host_network: bool = True
    launcher_image: str = ""
    image: str = ""


def build_pod(
    job: IpuJob,
    new_pod: MakePod,
    environment: Mapping[str, str],
    node_selector: Mapping[str, str],
    options: PodOptions,
) -> dict[str, Any]:
    """Return the object of a worker or a launcher.

    environment: the variables that say where its devices are. node_selector: the labels of its
    nodes.
    """
    template_metadata = job.template.get("metadata") or {}
    pod_spec = copy.deepcopy(dict(job.template["spec"]))
    pod_spec.pop("ephemeralContainers", None)
    # The operator restarts it, after it has reset the partition.
    pod_spec["restartPolicy"] = "Never"
    if node_selector:
        pod_spec["nodeSelector"] = dict(pod_spec.get("nodeSelector") or {}) | dict(node_selector)
    if options.host_network:
        pod_spec["hostNetwork"] = True
        pod_spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    if new_pod.role == LAUNCHER:
        _make_launcher_spec(job, pod_spec, options)
    elif job.ttl or (job.launcher is not None and not options.image):
        _sleep_by_default(pod_spec)
    if options.image:
        prove_partition = "IPUOF_VIPU_API_HOST" in environment
        equip_pod(job, new_pod, pod_spec, options.image, prove_partition=prove_partition)
    variables, name_of_pod = (
        dict(environment),
        pod_name(job, new_pod.role, new_pod.instance, new_pod.number),
    )
    if new_pod.role == WORKER:
        variables[WORKER_VARIABLE] = name_of_pod
    if job.workers > 1 and new_pod.role == WORKER:
        variables["IPUOF_VIPU_API_GCD_ID"] = str(new_pod.number % job.workers)
    for container in [*pod_spec.get("initContainers", ()), *pod_spec["containers"]]:
        container["env"] = _merge_env(container.get("env") or (), variables)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of_pod,
            "namespace": job.key.namespace,
            "labels": dict(template_metadata.get("labels") or {})
            | {
                UID_LABEL: job.key.uid,
                ROLE_LABEL: new_pod.role,
                INSTANCE_LABEL: str(new_pod.instance),
                ATTEMPT_LABEL: str(job.attempt),
            },
            "annotations": dict(template_metadata.get("annotations") or {})
            | {PARTITION_ANNOTATION: new_pod.partition},
            "ownerReferences": [owned_by(job)],
        },
        "spec": pod_spec,
    }


def owned_by(job: IpuJob) -> dict[str, Any]:
    """Return the owner reference that has Kubernetes remove an object once its job is gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": JOB_KIND,
        "name": job.key.name,
        "uid": job.key.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _merge_env(container_env: Any, variables: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the variables with ours first, so that others may refer to them. Others of the same
    names are dropped.
    """
    own_variables = [{"name": name, "value": value} for name, value in variables.items()]
    return own_variables + [
        dict(entry) for entry in container_env if entry["name"] not in variables
    ]


def _sleep_by_default(pod_spec: dict[str, Any]) -> None:
    """Let a worker without a command or arguments sleep, because a launcher starts programs in
    it.
    """
    container = pod_spec["containers"][0]
    if not container.get("command") and not container.get("args"):
        container["command"] = ["sleep", str(_SLEEP_SECONDS)]


def _make_launcher_spec(job: IpuJob, pod_spec: dict[str, Any], options: PodOptions) -> None:
    """Turn the spec into a launcher's: one container of the workers' image, with their files."""
    assert job.launcher is not None
    first_container = dict(pod_spec["containers"][0])
    for dropped_field in (
        "args",
        "ports",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ):
        first_container.pop(dropped_field, None)
    first_container["name"] = "launcher"
    first_container["command"] = list(job.launcher["command"])
    if options.launcher_image:
        first_container["image"] = options.launcher_image
    launcher_variables = list(job.launcher.get("env") or ())
    launcher_names = {variable["name"] for variable in launcher_variables}
    first_container["env"] = [
        variable
        for variable in first_container.get("env") or ()
        if variable["name"] not in launcher_names
    ] + launcher_variables
    pod_spec["containers"] = [first_container]
