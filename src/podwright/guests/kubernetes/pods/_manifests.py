"""The objects that a cluster needs beside IPUJobs: the operator, its account and its rights. Pure.

Every object is made here. The Helm chart consists of the same objects with its values in them.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from podwright._version import __version__
from podwright.errors import InvalidRequest
from podwright.guests.kubernetes.job._crd import CEL_FROM, GROUP, PLURAL, crd
from podwright.guests.kubernetes.pods._exec_rights import EXEC_VERBS

NAME: Final = "podwright-operator"
LEASE: Final = "podwright-operator"
METRICS_PORT: Final = 9345  #: of /metrics and the probes, in the operator's pod
_OLDEST: Final = 16  # CRDs of apiextensions.k8s.io/v1
_SOCKET: Final = "/run/podwright/vipu.sock"
_RBAC: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/name": NAME}

#: Groups, each with kinds and verbs.
Rights = tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]
#: What the operator may do in all namespaces. It makes the secrets of jobs, and may read none.
RIGHTS: Final[Rights] = (
    (GROUP, (PLURAL,), ("get", "list", "watch", "patch")),
    (GROUP, (f"{PLURAL}/status",), ("patch",)),
    (GROUP, (f"{PLURAL}/finalizers",), ("update",)),
    ("", ("pods",), ("get", "list", "watch", "create", "delete")),
    ("", ("secrets",), ("create",)),
    ("", ("events",), ("create",)),
    ("", ("nodes",), ("get", "list", "watch")),
    ("scheduling.k8s.io", ("priorityclasses",), ("list",)),
)


#: The operator's further rights where launchers may call their workers through the API server. It
#: makes an account and a role for each, and must itself have the rights that it gives. Otherwise it
#: would need the verb `escalate`, with which an account can give itself every right.
EXEC_RIGHTS: Final[Rights] = (
    ("", ("pods/exec",), EXEC_VERBS),
    ("", ("serviceaccounts",), ("create",)),
    (_RBAC, ("roles", "rolebindings"), ("create",)),
)


class Setting(NamedTuple):
    """What a site sets. Texts and values may be placeholders of a chart.

    controllers: the V-IPU controllers, in the form of Graphcore's chart. simulated: a preset; a
    server of simulated devices then runs beside the operator, and controllers is ignored.
    exec_fallback: launchers may call their workers through the API server. service_monitor: a
    ServiceMonitor is made too; that kind comes with the Prometheus operator.
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
    name: str = NAME
    exec_fallback: Any = False
    service_monitor: bool = False


def minor_of(version: str) -> int:
    """Return the minor version of a Kubernetes version such as `1.34`, `v1.34.2` or `1.34.2+k3s1`.

    Raises InvalidRequest.
    """
    match = re.fullmatch(r"v?1\.(\d{1,3})(?:[.+-].*)?", version)
    if match is None or int(match[1]) < _OLDEST:
        raise InvalidRequest(
            f"{version[:40]!r} is not a version of Kubernetes that has CRDs as we write them",
            would_work=f"--for 1.34, or any from 1.{_OLDEST} on",
        )
    return int(match[1])


def manifests(setting: Setting, minor: int = CEL_FROM) -> list[dict[str, Any]]:
    """Return all objects, in the order in which to create them."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": setting.namespace}}
    more = exec_rights(setting) if setting.exec_fallback else []
    monitors = monitor(setting) if setting.service_monitor else []
    return [namespace, crd(minor), *rights(setting), *more, deployment(setting), *monitors]


def rights(setting: Setting) -> list[dict[str, Any]]:
    """Return the operator's account and its rights."""
    of_cluster = {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "resourceNames": ["kube-system"],  # its uid names the cluster
        "verbs": ["get"],
    }
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    lease_rights = [
        leases | {"verbs": ["create"]},
        leases | {"resourceNames": [LEASE], "verbs": ["get", "update"]},
    ]
    meta = {"name": setting.name, "namespace": setting.namespace, "labels": _LABELS}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        *_role(setting, "ClusterRole", setting.name, [*_rules(RIGHTS), of_cluster]),
        *_role(setting, "Role", setting.name, lease_rights, namespace=setting.namespace),
    ]


def monitor(setting: Setting) -> list[dict[str, Any]]:
    """Return the operator's Service, and the ServiceMonitor by which Prometheus finds it."""
    meta = {"name": setting.name, "namespace": setting.namespace, "labels": _LABELS}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {
                "selector": _LABELS,
                "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
            },
        },
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": _LABELS},
                "endpoints": [{"port": "metrics", "interval": "30s"}],
            },
        },
    ]


def kustomize(setting: Setting, minor: int = CEL_FROM) -> dict[str, str]:
    """Return the files of a kustomize base, by name: one for each object, and the list of them."""
    objects = manifests(setting, minor)
    kinds = [str(item["kind"]) for item in objects]
    names = [
        f"{item['kind'].lower()}"
        + (f"-{item['metadata']['name']}" if kinds.count(str(item["kind"])) > 1 else "")
        + ".yaml"
        for item in objects
    ]
    base = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": names,
    }
    out = {name: as_yaml([item]) for name, item in zip(names, objects, strict=True)}
    return out | {"kustomization.yaml": as_yaml([base])}


def exec_rights(setting: Setting) -> list[dict[str, Any]]:
    """Return the further rights of the operator where launchers may use pods/exec."""
    return _role(setting, "ClusterRole", f"{setting.name}-exec", _rules(EXEC_RIGHTS))


def _rules(table: Rights) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(verbs)}
        for group, kinds, verbs in table
    ]


def _role(
    setting: Setting, kind: str, name: str, rules: list[dict[str, Any]], **where: str
) -> list[dict[str, Any]]:
    """Return a role, and its binding to the operator's account."""
    meta = {"name": name, **where, "labels": _LABELS}
    account = {
        "kind": "ServiceAccount",
        "name": setting.name,
        "namespace": setting.namespace,
    }
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
            "subjects": [account],
        },
    ]


def deployment(setting: Setting) -> dict[str, Any]:
    """Return the Deployment of the operator. One operator acts at a time, and holds a lease."""
    containers = [_operator(setting)]
    spec: dict[str, Any] = {
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
        containers.append(_server(setting))
        volumes.append({"name": "run", "emptyDir": {"medium": "Memory"}})
    if setting.credentials:
        secret = {"secretName": setting.credentials, "defaultMode": 0o440}
        volumes.append({"name": "credentials", "secret": secret})
    spec["volumes"] = volumes
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": setting.name, "namespace": setting.namespace, "labels": _LABELS},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": spec},
        },
    }


def _operator(setting: Setting) -> dict[str, Any]:
    # openssl makes the keys of jobs in /tmp
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]
    controllers = setting.controllers
    if setting.simulated:
        controllers = f"unix:{_SOCKET}"
        mounts.append({"name": "run", "mountPath": "/run/podwright"})
    command = [
        "podwright",
        "kubernetes",
        "operator",
        f"--controllers={controllers}",
        f"--lease={setting.namespace}/{LEASE}",
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
    if setting.exec_fallback is not False:
        exec_fallback = "true" if setting.exec_fallback is True else setting.exec_fallback
        command.append(f"--exec-fallback={exec_fallback}")
    probes = {
        name: {"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": 10}
        for name, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz"))
    }
    ports = [{"name": "metrics", "containerPort": METRICS_PORT}]
    container = _container("operator", setting, command)
    return container | {"ports": ports, **probes, "volumeMounts": mounts}


def _server(setting: Setting) -> dict[str, Any]:
    command = [
        "vipu-server",
        f"--preset={setting.simulated}",
        f"--socket={_SOCKET}",
        "--storage=/run/podwright/store.db",
    ]
    mounts = [{"name": "run", "mountPath": "/run/podwright"}]
    return _container("vipu-server", setting, command) | {"volumeMounts": mounts}


def _container(name: str, setting: Setting, command: list[str]) -> dict[str, Any]:
    return {
        "name": name,
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
