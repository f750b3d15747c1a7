"""What stands in a cluster beside IPUJobs: the operator, its account, and its rights. Pure.

Every object is made here; the Helm chart is the same objects with its values in them.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from podwright._version import __version__
from podwright.errors import InvalidRequest
from podwright.kubernetes._crd import CEL_FROM, GROUP, PLURAL, crd

NAME: Final = "podwright-operator"
LEASE: Final = "podwright-operator"
_OLDEST: Final = 16  # CRDs of apiextensions.k8s.io/v1
_SOCKET: Final = "/run/podwright/vipu.sock"
_LABELS: Final = {"app.kubernetes.io/name": NAME}

#: What the operator may do in all namespaces. It makes the secrets of jobs, and may read none.
RIGHTS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    (GROUP, (PLURAL,), ("get", "list", "watch", "patch")),
    (GROUP, (f"{PLURAL}/status",), ("patch",)),
    (GROUP, (f"{PLURAL}/finalizers",), ("update",)),
    ("", ("pods",), ("get", "list", "watch", "create", "delete")),
    ("", ("secrets",), ("create",)),
    ("", ("nodes",), ("get", "list", "watch")),
)


class Setting(NamedTuple):
    """What a site sets. Texts and values may be placeholders of a chart's.

    controllers: of V-IPU, as Graphcore's chart names them. simulated: a preset; then a server of
    simulated devices stands beside the operator, and controllers is not asked.
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


def minor_of(version: str) -> int:
    """The minor version of a Kubernetes that `1.34`, `v1.34.2` or `1.34.2+k3s1` names.

    Raises InvalidRequest.
    """
    found = re.fullmatch(r"v?1\.(\d{1,3})(?:[.+-].*)?", version)
    if found is None or int(found[1]) < _OLDEST:
        raise InvalidRequest(
            f"{version[:40]!r} is no version of Kubernetes that has CRDs as we write them",
            would_work=f"--for 1.34, or any from 1.{_OLDEST} on",
        )
    return int(found[1])


def manifests(setting: Setting, minor: int = CEL_FROM) -> list[dict[str, Any]]:
    """All objects, in the order in which they are made."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": setting.namespace}}
    return [namespace, crd(minor), *rights(setting), deployment(setting)]


def rights(setting: Setting) -> list[dict[str, Any]]:
    """The operator's account and what it may do."""
    api, name, where = "rbac.authorization.k8s.io/v1", setting.name, setting.namespace
    account = {"kind": "ServiceAccount", "name": name, "namespace": where}

    def bound(kind: str, to: str, **meta: str) -> dict[str, Any]:
        return {
            "apiVersion": api,
            "kind": f"{kind}Binding",
            "metadata": {"name": name, **meta, "labels": _LABELS},
            "roleRef": {"apiGroup": api.split("/")[0], "kind": to, "name": name},
            "subjects": [account],
        }

    everywhere = [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(verbs)}
        for group, kinds, verbs in RIGHTS
    ]
    everywhere.append(
        {
            "apiGroups": [""],
            "resources": ["namespaces"],
            "resourceNames": ["kube-system"],  # its uid names the cluster
            "verbs": ["get"],
        }
    )
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    here = [
        leases | {"verbs": ["create"]},
        leases | {"resourceNames": [LEASE], "verbs": ["get", "update"]},
    ]
    meta = {"name": name, "labels": _LABELS}
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": where, "labels": _LABELS},
        },
        {"apiVersion": api, "kind": "ClusterRole", "metadata": meta, "rules": everywhere},
        bound("ClusterRole", "ClusterRole"),
        {
            "apiVersion": api,
            "kind": "Role",
            "metadata": {"name": name, "namespace": where, "labels": _LABELS},
            "rules": here,
        },
        bound("Role", "Role", namespace=where),
    ]


def deployment(setting: Setting) -> dict[str, Any]:
    """The operator itself: one at a time, which holds a lease."""
    containers = [_operator(setting)]
    spec: dict[str, Any] = {
        "serviceAccountName": setting.name,
        "hostNetwork": setting.operator_network,
        "imagePullSecrets": setting.pull_secrets or [],
        "nodeSelector": setting.node_selector or {},
        "tolerations": setting.tolerations or [],
        "affinity": setting.affinity or {},
        "terminationGracePeriodSeconds": 10,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
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
    return _container("operator", setting, command) | {"volumeMounts": mounts}


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
    """Objects as kubectl reads them. Raises ImportError without PyYAML."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, explicit_start=True, width=1000)
