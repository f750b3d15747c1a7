"""A Helm chart with the values of Graphcore's (chart 1.2.0), of the same objects as the manifests.

What a site sets stands in the templates as `.Values`, and the three kinds of operator (beside
simulated devices, with a key for its controllers, plain) stand one below the other in `if`; nothing
else of Helm's language is used, so a template is objects of `_manifests` with holes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from podwright._version import __version__
from podwright.kubernetes._crd import CEL_FROM, crd
from podwright.kubernetes._manifests import NAME, Setting, as_yaml, deployment, exec_rights, rights

#: The values and their defaults. Those of Graphcore's that have no meaning here (webhooks, the
#: V-IPU proxy, its images) are taken and do nothing, so that a site's own values file works as it
#: is: its copy of that chart's names images in which there is nothing of ours.
VALUES: Final[dict[str, Any]] = {
    "nameOverride": "",
    "fullnameOverride": "",
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
        "image": {},
        "nodeSelector": {},
        "resources": {},
        "tolerations": [],
    },
    "vipuProxy": {},
    "worker": {"hostNetwork": True},
    "podwright": {
        "clusterName": "",
        "credentialsSecret": "",
        "execFallback": False,
        "image": {"repository": "podwright", "tag": __version__, "pullPolicy": "IfNotPresent"},
        "launcherImage": "",
        "simulated": "",
    },
}
_HOLE: Final = re.compile(r"'?@@([^@]+)@@'?")
_BRANCH: Final = re.compile(r"\{\{- (?:if|else if|else|end) ?(\.[\w.]+)? ?\}\}")
_END: Final = "{{- end }}"


def _value(path: str) -> str:
    return f"@@.Values.{path}@@"


def chart() -> dict[str, str]:
    """Its files, by their paths in the chart's folder."""
    setting = Setting(
        namespace="@@.Release.Namespace@@",
        image=f"{_value('podwright.image.repository')}:{_value('podwright.image.tag')}",
        pull_policy=_value("podwright.image.pullPolicy"),
        controllers=_value("global.vipuControllers"),
        cluster_name=_value("podwright.clusterName"),
        launcher_image=_value("podwright.launcherImage"),
        host_network=_value("worker.hostNetwork"),
        pull_secrets=_value("global.imagePullSecrets | toJson"),
        node_selector=_value("controller.nodeSelector | toJson"),
        tolerations=_value("controller.tolerations | toJson"),
        affinity=_value("controller.affinity | toJson"),
        resources=_value("controller.resources | toJson"),
        operator_network=_value("controller.hostNetwork"),
        exec_fallback=_value("podwright.execFallback"),
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
        "templates/exec.yaml": (
            "{{- if .Values.podwright.execFallback }}\n"
            f"{_template(exec_rights(setting))}"
            "{{- end }}\n"
        ),
        "templates/operator.yaml": _kinds(setting),
    }


def _kinds(setting: Setting) -> str:
    """The operator in its kinds, of which the values choose one."""
    said = {name: _value(f"podwright.{name}") for name in ("simulated", "credentialsSecret")}
    simulated = setting._replace(simulated=said["simulated"])
    credentials = setting._replace(credentials=said["credentialsSecret"])
    return "".join(
        (
            "{{- if .Values.podwright.simulated }}\n",
            _template([deployment(simulated)]),
            "{{- else if .Values.podwright.credentialsSecret }}\n",
            _template([deployment(credentials)]),
            "{{- else }}\n",
            _template([deployment(setting)]),
            "{{- end }}\n",
        )
    )


def _template(objects: list[dict[str, Any]]) -> str:
    return _HOLE.sub(lambda found: "{{ " + found[1] + " }}", as_yaml(objects))


def filled(template: str, values: Mapping[str, Any], namespace: str) -> str:
    """What Helm makes of a template of ours, for tests. values: all of them."""
    import json

    def value(path: str) -> Any:
        at: Any = values
        for part in path.removeprefix(".Values.").split("."):
            at = at[part]
        return at

    def put(found: re.Match[str]) -> str:
        path, _, form = found[1].partition(" | ")
        if path == ".Release.Namespace":
            return namespace
        at = value(path)
        return json.dumps(at) if form or isinstance(at, bool) else str(at)

    kept, chosen, taken = [], True, False
    for line in template.splitlines():
        if branch := _BRANCH.fullmatch(line):
            chosen = not taken and (not branch[1] or bool(value(branch[1])))
            taken = chosen or (taken and branch[0] != _END)
            chosen = chosen or branch[0] == _END
        elif chosen:
            kept.append(line)
    return re.sub(r"\{\{ ([^}]+) \}\}", put, "\n".join(kept) + "\n")
