"""Makes a Helm chart with the values of Graphcore's chart (1.2.0). Its objects are those of the
manifests.

What a site sets is in the templates as `.Values`. The three kinds of operator (beside simulated
devices, with a key for its controllers, plain) follow one another under `if`. Nothing else of
Helm's language is used, so a template consists of objects of `_manifests` with placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from podwright._version import __version__
from podwright.guests.kubernetes.job._crd import CEL_FROM, crd
from podwright.guests.kubernetes.pods._manifests import (
    OPERATOR_NAME,
    Setting,
    as_yaml,
    deployment,
    monitor,
    rights,
)

#: The values and their defaults. Values of Graphcore's chart that have no meaning here (webhooks,
#: the V-IPU proxy, its images) are accepted and ignored, so that a site's values file works
#: unchanged. The images that such a file names contain nothing of ours.
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
        "image": {"repository": "podwright", "tag": __version__, "pullPolicy": "IfNotPresent"},
        "launcherImage": "",
        "serviceMonitor": False,
        "simulated": "",
    },
}
_HOLE_PATTERN: Final = re.compile(r"'?@@([^@]+)@@'?")
_BRANCH_PATTERN: Final = re.compile(r"\{\{- (?:if|else if|else|end) ?(\.[\w.]+)? ?\}\}")
_END_TAG: Final = "{{- end }}"


def _value_placeholder(path: str) -> str:
    return f"@@.Values.{path}@@"


def chart() -> dict[str, str]:
    """Return the chart's files, by their paths in the chart's folder."""
    setting = Setting(
        namespace="@@.Release.Namespace@@",
        image=f"{_value_placeholder('podwright.image.repository')}:{_value_placeholder('podwright.image.tag')}",
        pull_policy=_value_placeholder("podwright.image.pullPolicy"),
        controllers=_value_placeholder("global.vipuControllers"),
        cluster_name=_value_placeholder("podwright.clusterName"),
        launcher_image=_value_placeholder("podwright.launcherImage"),
        host_network=_value_placeholder("worker.hostNetwork"),
        pull_secrets=_value_placeholder("global.imagePullSecrets | toJson"),
        node_selector=_value_placeholder("controller.nodeSelector | toJson"),
        tolerations=_value_placeholder("controller.tolerations | toJson"),
        affinity=_value_placeholder("controller.affinity | toJson"),
        resources=_value_placeholder("controller.resources | toJson"),
        operator_network=_value_placeholder("controller.hostNetwork"),
    )
    chart_metadata = {
        "apiVersion": "v2",
        "name": OPERATOR_NAME,
        "description": "IPUJobs on partitions of V-IPU controllers.",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": f">=1.{CEL_FROM}.0-0",
    }
    return {
        "Chart.yaml": as_yaml([chart_metadata]),
        "values.yaml": as_yaml([VALUES]),
        "crds/ipujobs.yaml": as_yaml([crd(CEL_FROM)]),
        "templates/rights.yaml": _helm_template(rights(setting)),
        "templates/operator.yaml": _operator_template(setting),
        "templates/monitor.yaml": (
            "{{- if .Values.podwright.serviceMonitor }}\n"
            f"{_helm_template(monitor(setting))}"
            "{{- end }}\n"
        ),
        "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
    }


def values_schema() -> dict[str, Any]:
    """Return the JSON schema by which Helm checks a site's values.

    Values of Graphcore's chart may have more keys than are listed. Below `podwright` and `global`
    an unknown key is refused, since it is a mistake. So are names of objects, which are ours.
    """
    schema = _schema_of(VALUES)
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    for section in ("podwright", "global"):
        schema["properties"][section]["additionalProperties"] = False
    for name in ("nameOverride", "fullnameOverride"):
        schema["properties"][name]["maxLength"] = 0
    return schema


def _schema_of(default_value: Any) -> dict[str, Any]:
    if isinstance(default_value, Mapping):
        properties = {key: _schema_of(nested_value) for key, nested_value in default_value.items()}
        return {"type": "object", "properties": properties} if properties else {"type": "object"}
    if isinstance(default_value, bool):
        return {"type": "boolean"}
    return {"type": "array" if isinstance(default_value, list) else "string"}


def _operator_template(setting: Setting) -> str:
    """Return the template with all kinds of operator, of which the values choose one."""
    placeholders = {
        name: _value_placeholder(f"podwright.{name}") for name in ("simulated", "credentialsSecret")
    }
    simulated_setting = setting._replace(simulated=placeholders["simulated"])
    credentials_setting = setting._replace(credentials=placeholders["credentialsSecret"])
    return "".join(
        (
            "{{- if .Values.podwright.simulated }}\n",
            _helm_template([deployment(simulated_setting)]),
            "{{- else if .Values.podwright.credentialsSecret }}\n",
            _helm_template([deployment(credentials_setting)]),
            "{{- else }}\n",
            _helm_template([deployment(setting)]),
            "{{- end }}\n",
        )
    )


def _helm_template(objects: list[dict[str, Any]]) -> str:
    return _HOLE_PATTERN.sub(lambda match: "{{ " + match[1] + " }}", as_yaml(objects))


def filled(template: str, values: Mapping[str, Any], namespace: str) -> str:
    """Return what Helm makes of a template of ours, for tests. values: all values."""

    def value(value_path: str) -> Any:
        current: Any = values
        for part in value_path.removeprefix(".Values.").split("."):
            current = current[part]
        return current

    def put(match: re.Match[str]) -> str:
        value_path, _, text = match[1].partition(" | ")
        if value_path == ".Release.Namespace":
            return namespace
        setting_value = value(value_path)
        return (
            json.dumps(setting_value)
            if text or isinstance(setting_value, bool)
            else str(setting_value)
        )

    output_lines, is_chosen, branch_taken = [], True, False
    for line in template.splitlines():
        if branch_match := _BRANCH_PATTERN.fullmatch(line):
            is_chosen = not branch_taken and (not branch_match[1] or bool(value(branch_match[1])))
            branch_taken = is_chosen or (branch_taken and branch_match[0] != _END_TAG)
            is_chosen = is_chosen or branch_match[0] == _END_TAG
        elif is_chosen:
            output_lines.append(line)
    return re.sub(r"\{\{ ([^}]+) \}\}", put, "\n".join(output_lines) + "\n")
