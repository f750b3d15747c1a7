"""The objects that a cluster needs beside IPUJobs: the operator, its account and its rights. Pure.

Every object is made here. The Helm chart consists of the same objects with its values in them.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from podwright._version import __version__
from podwright.errors import InvalidRequest
from podwright.guests.kubernetes.job._crd import CEL_FROM, JOB_API_GROUP, JOB_PLURAL, crd

OPERATOR_NAME: Final = "podwright-operator"
LEASE_NAME: Final = "podwright-operator"
METRICS_PORT: Final = 9345  #: of /metrics and the probes, in the operator's pod
_OLDEST_MINOR: Final = 16  # CRDs of apiextensions.k8s.io/v1
_SERVER_SOCKET: Final = "/run/podwright/vipu.sock"
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_OPERATOR_LABELS: Final = {"app.kubernetes.io/name": OPERATOR_NAME}

#: Groups, each with kinds and verbs.
Rights = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
#: What the operator may do in all namespaces. It makes the secrets of jobs, and may read none.
RIGHTS: Final[Rights] = (
    (JOB_API_GROUP, (JOB_PLURAL,), ("get", "list", "watch", "patch")),
    (JOB_API_GROUP, (f"{JOB_PLURAL}/status",), ("patch",)),
    (JOB_API_GROUP, (f"{JOB_PLURAL}/finalizers",), ("update",)),
    ("", ("pods",), ("get", "list", "watch", "create", "delete")),
    ("", ("secrets",), ("create",)),
    ("", ("events",), ("create",)),
    ("", ("nodes",), ("get", "list", "watch")),
    ("scheduling.k8s.io", ("priorityclasses",), ("list",)),
)


class Setting(NamedTuple):
    """What a site sets. Texts and values may be placeholders of a chart.

    controllers: the V-IPU controllers, in the form of Graphcore's chart. simulated: a preset; a
    server of simulated devices then runs beside the operator, and controllers is ignored.
    service_monitor: a ServiceMonitor is made too; that kind comes with the Prometheus operator.
    """

    namespace: str = "podwright"
    image: str = f"podwright:{__version__}"
    pull_policy: str = "IfNotPresent"
    controllers: str = ""
    simulated: str = ""
    cluster_name: str = ""
    credentials: str = ""
    host_network: Any = True
    launcher_image: str = ""
    pull_secrets: Any = ()
    node_selector: Any = None
    tolerations: Any = ()
    affinity: Any = None
    resources: Any = None
    operator_network: Any = False
    name: str = OPERATOR_NAME
    service_monitor: bool = False


def minor_of(version: str) -> int:
    """Return the minor version of a Kubernetes version such as `1.34`, `v1.34.2` or `1.34.2+k3s1`.

    Raises InvalidRequest.
    """
    match = re.fullmatch(r"v?1\.(\d{1,3})(?:[.+-].*)?", version)
    if match is None or int(match[1]) < _OLDEST_MINOR:
        raise InvalidRequest(
            f"{version[:40]!r} is not a version of Kubernetes that has CRDs as we write them",
            would_work=f"--for 1.34, or any from 1.{_OLDEST_MINOR} on",
        )
    return int(match[1])


def manifests(setting: Setting, kubernetes_minor: int = CEL_FROM) -> list[dict[str, Any]]:
    """Return all objects, in the order in which to create them."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": setting.namespace}}
    objects = monitor(setting) if setting.service_monitor else []
    return [
        namespace,
        crd(kubernetes_minor),
        *rights(setting),
        deployment(setting),
        *objects,
    ]


def rights(setting: Setting) -> list[dict[str, Any]]:
    """Return the operator's account and its rights."""
    cluster_uid_rule = {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "resourceNames": ["kube-system"],  # its uid names the cluster
        "verbs": ["get"],
    }
    lease_resource = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    lease_rights = [
        lease_resource | {"verbs": ["create"]},
        lease_resource | {"resourceNames": [LEASE_NAME], "verbs": ["get", "update"]},
    ]
    metadata = {"name": setting.name, "namespace": setting.namespace, "labels": _OPERATOR_LABELS}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *_role_and_binding(
            setting, "ClusterRole", setting.name, [*_rbac_rules(RIGHTS), cluster_uid_rule]
        ),
        *_role_and_binding(
            setting, "Role", setting.name, lease_rights, namespace=setting.namespace
        ),
    ]


def monitor(setting: Setting) -> list[dict[str, Any]]:
    """Return the operator's Service, and the ServiceMonitor by which Prometheus finds it."""
    metadata = {"name": setting.name, "namespace": setting.namespace, "labels": _OPERATOR_LABELS}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {
                "selector": _OPERATOR_LABELS,
                "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
            },
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": metadata,
            "spec": {
                "selector": {"matchLabels": _OPERATOR_LABELS},
                "endpoints": [{"port": "metrics", "interval": "30s"}],
            },
        },
    ]


def _rbac_rules(rights_table: Rights) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(verbs)}
        for group, kinds, verbs in rights_table
    ]


def _role_and_binding(
    setting: Setting,
    role_kind: str,
    role_name: str,
    rules: list[dict[str, Any]],
    **namespace_field: str,
) -> list[dict[str, Any]]:
    """Return a role, and its binding to the operator's account."""
    metadata = {"name": role_name, **namespace_field, "labels": _OPERATOR_LABELS}
    subject = {
        "kind": "ServiceAccount",
        "name": setting.name,
        "namespace": setting.namespace,
    }
    return [
        {
            "apiVersion": f"{_RBAC_GROUP}/v1",
            "kind": role_kind,
            "metadata": metadata,
            "rules": rules,
        },
        {
            "apiVersion": f"{_RBAC_GROUP}/v1",
            "kind": f"{role_kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC_GROUP, "kind": role_kind, "name": role_name},
            "subjects": [subject],
        },
    ]


def deployment(setting: Setting) -> dict[str, Any]:
    """Return the Deployment of the operator. One operator acts at a time, and holds a lease."""
    containers = [_operator_container(setting)]
    pod_spec: dict[str, Any] = {
        "serviceAccountName": setting.name,
        "hostNetwork": setting.operator_network,
        "imagePullSecrets": setting.pull_secrets or [],
        "nodeSelector": setting.node_selector or {},
        "tolerations": setting.tolerations or [],
        "affinity": setting.affinity or {},
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
    }
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]
    if setting.simulated:
        containers.append(_server_container(setting))
        volumes.append({"name": "run", "emptyDir": {"medium": "Memory"}})
    if setting.credentials:
        secret_source = {"secretName": setting.credentials, "defaultMode": 0o440}
        volumes.append({"name": "credentials", "secret": secret_source})
    pod_spec["volumes"] = volumes
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": setting.name,
            "namespace": setting.namespace,
            "labels": _OPERATOR_LABELS,
        },
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _OPERATOR_LABELS},
            "template": {"metadata": {"labels": _OPERATOR_LABELS}, "spec": pod_spec},
        },
    }


def _operator_container(setting: Setting) -> dict[str, Any]:
    # openssl makes the keys of jobs in /tmp
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    controllers = setting.controllers
    if setting.simulated:
        controllers = f"unix:{_SERVER_SOCKET}"
        mounts.append({"name": "run", "mountPath": "/run/podwright"})
    command = [
        "podwright",
        "kubernetes",
        "operator",
        f"--controllers={controllers}",
        f"--lease={setting.namespace}/{LEASE_NAME}",
        f"--image={setting.image}",
        f"--listen=0.0.0.0:{METRICS_PORT}",
    ]
    if setting.cluster_name:
        command.append(f"--cluster-name={setting.cluster_name}")
    if setting.launcher_image:
        command.append(f"--launcher-image={setting.launcher_image}")
    if setting.credentials:
        command.append("--config=/etc/podwright/vipu-cli.hcl")
        mounts.append({"name": "credentials", "mountPath": "/etc/podwright", "readOnly": True})
    if setting.simulated or setting.host_network is False:
        command.append("--host-network=false")
    elif setting.host_network is not True:
        command.append(f"--host-network={setting.host_network}")
    probes = {
        name: {"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": 10}
        for name, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz"))
    }
    ports = [{"name": "metrics", "containerPort": METRICS_PORT}]
    container = _build_container("operator", setting, command)
    return container | {"ports": ports, **probes, "volumeMounts": mounts}


def _server_container(setting: Setting) -> dict[str, Any]:
    command = [
        "vipu-server",
        f"--preset={setting.simulated}",
        f"--socket={_SERVER_SOCKET}",
        "--storage=/run/podwright/store.db",
    ]
    mounts = [{"name": "run", "mountPath": "/run/podwright"}]
    return _build_container("vipu-server", setting, command) | {"volumeMounts": mounts}


def _build_container(container_name: str, setting: Setting, command: list[str]) -> dict[str, Any]:
    return {
        "name": container_name,
        "image": setting.image,
        "imagePullPolicy": setting.pull_policy,
        "command": command,
        "resources": setting.resources or {},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def as_yaml(objects: list[dict[str, Any]]) -> str:
    """Return objects as YAML for kubectl. Raises ImportError without PyYAML.

    libyaml writes the same text as PyYAML's own writer, in a seventh of the time.
    """
    import yaml

    writer: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper

    class Dumper(writer):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, explicit_start=True, width=1000)
