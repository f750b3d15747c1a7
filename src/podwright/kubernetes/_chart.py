"""A Helm chart with the values of Graphcore's (chart 1.2.0), of the same objects as the manifests.

What a site sets stands in the templates as `.Values`; nothing else of Helm's language is used, so
a template is an object of `_manifests` with holes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from podwright._version import __version__
from podwright.kubernetes._crd import CEL_FROM, crd
from podwright.kubernetes._manifests import NAME, Setting, as_yaml, deployment, rights

#: The values and their defaults. Those of Graphcore's that have no meaning here (webhooks, the
#: V-IPU proxy) are taken and do nothing, so that a site's own values file works as it is.
VALUES: Final[dict[str, Any]] = {
    "nameOverride": "",
    "fullNameOverride": "",
    "global": {
        "imagePullSecrets": [],
        "kubectlVersion": "",
        "launcherImage": "",
        "launcherImageTag": "",
        "launcherImagePullPolicy": "IfNotPresent",
        "vipuControllers": "",
    },
    "admissionWebhooks": {},
    "controller": {
        "affinity": {},
        "hostNetwork": False,
        "image": {"repository": "podwright", "tag": __version__, "pullPolicy": "IfNotPresent"},
        "nodeSelector": {},
        "resources": {},
        "tolerations": [],
    },
    "vipuProxy": {},
    "worker": {"hostNetwork": True},
    "podwright": {"clusterName": "", "credentialsSecret": "", "simulated": ""},
}
_HOLE: Final = re.compile(r"'?@@([^@]+)@@'?")


def _value(path: str) -> str:
    return f"@@.Values.{path}@@"


def chart() -> dict[str, str]:
    """Its files, by their paths in the chart's folder."""
    setting = Setting(
        namespace="@@.Release.Namespace@@",
        image=f"{_value('controller.image.repository')}:{_value('controller.image.tag')}",
        pull_policy=_value("controller.image.pullPolicy"),
        controllers=_value("global.vipuControllers"),
        cluster_name=_value("podwright.clusterName"),
        launcher_image=_value("global.launcherImage"),
        host_network=_value("worker.hostNetwork"),
        pull_secrets=_value("global.imagePullSecrets | toJson"),
        node_selector=_value("controller.nodeSelector | toJson"),
        tolerations=_value("controller.tolerations | toJson"),
        affinity=_value("controller.affinity | toJson"),
        resources=_value("controller.resources | toJson"),
        operator_network=_value("controller.hostNetwork"),
    )
    about = {
        "apiVersion": "v2",
        "name": NAME,
        "description": "IPUJobs on partitions of V-IPU controllers.",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": f">=1.{CEL_FROM}.0-0",
    }
    return {
        "Chart.yaml": as_yaml([about]),
        "values.yaml": as_yaml([VALUES]),
        "crds/ipujobs.yaml": as_yaml([crd(CEL_FROM)]),
        "templates/rights.yaml": _template(rights(setting)),
        "templates/operator.yaml": _template([deployment(setting)]),
    }


def _template(objects: list[dict[str, Any]]) -> str:
    return _HOLE.sub(lambda found: "{{ " + found[1] + " }}", as_yaml(objects))


def filled(template: str, values: Mapping[str, Any], namespace: str) -> str:
    """What Helm makes of a template of ours: for `podwright kubernetes chart --check` and tests."""
    import json

    def put(found: re.Match[str]) -> str:
        path, _, form = found[1].partition(" | ")
        if path == ".Release.Namespace":
            return namespace
        at: Any = values
        for part in path.removeprefix(".Values.").split("."):
            at = at[part]
        return json.dumps(at) if form or isinstance(at, bool) else str(at)

    return re.sub(r"\{\{ ([^}]+) \}\}", put, template)
