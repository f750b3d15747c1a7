"""The objects that the operator puts into a cluster. No cluster is asked."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import yaml

from podwright.cli.podwright import main
from podwright.errors import InvalidRequest
from podwright.guests.kubernetes import (
    RULES,
    VALUES,
    PodOptions,
    Setting,
    chart,
    crd,
    filled,
    manifests,
    minor_of,
    read_sites,
)
from podwright.guests.kubernetes.job._ipu_job import read_job
from podwright.guests.kubernetes.job._reconcile import MakePod
from podwright.guests.kubernetes.pods._pod_objects import build_pod

#: SHA-256 of the schema of Graphcore's chart 1.2.0, as JSON with sorted keys and sorted `required`,
#: without its descriptions.
CHART_1_2_0 = "83994c49c825c657c1d326ddf20bd533179df72a029a71fa70182f1052193cd7"


def _all_read(text: str) -> list[Any]:
    """Return the objects of a text of YAML. PyYAML's reader in Python would take seconds."""
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def _read(text: str) -> Any:
    """Return the only object of a text of YAML."""
    (made,) = _all_read(text)
    return made


def bare(schema: Any) -> Any:
    """Return a schema without its descriptions for people."""
    if isinstance(schema, list):
        return [bare(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = {
        name: bare(value)
        for name, value in schema.items()
        if name != "description" or isinstance(value, dict)
    }
    if isinstance(out.get("required"), list):
        out["required"] = sorted(out["required"])
    return out


def version_of(minor: int) -> Any:
    """Return its only version."""
    return crd(minor)["spec"]["versions"][0]


def test_the_schema_is_that_of_chart_1_2_0_and_our_two_fields() -> None:
    schema = bare(version_of(20)["schema"]["openAPIV3Schema"])
    assert schema["properties"]["spec"]["properties"].pop("suspend") == {"type": "boolean"}
    generation = schema["properties"]["status"]["properties"].pop("observedGeneration")
    assert generation == {"type": "integer", "format": "int64"}
    text = json.dumps(schema, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == CHART_1_2_0


def test_columns_scale_and_status_are_those_of_chart_1_2_0() -> None:
    version = version_of(20)
    columns = [
        (one["name"], one["type"], one["jsonPath"]) for one in version["additionalPrinterColumns"]
    ]
    assert columns == [
        ("status", "string", ".status.launcherStatus"),
        ("current", "integer", ".status.currentReplicas"),
        ("desired", "integer", ".status.desiredReplicas"),
        ("LastMessage", "string", ".status.lastMessage"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.jobInstances",
            "statusReplicasPath": ".status.desiredReplicas",
        },
    }


@pytest.mark.parametrize(("minor", "rules"), [(20, 0), (24, 0), (25, len(RULES)), (36, len(RULES))])
def test_the_definition_has_cel_rules_where_servers_know_them(minor: int, rules: int) -> None:
    spec = version_of(minor)["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert len(spec.get("x-kubernetes-validations", [])) == rules


@pytest.mark.parametrize(
    ("text", "minor"), [("1.20", 20), ("v1.34.2", 34), ("1.29.1+k3s1", 29), ("1.25-gke.4", 25)]
)
def test_versions_of_kubernetes_are_read(text: str, minor: int) -> None:
    assert minor_of(text) == minor


@pytest.mark.parametrize("text", ["", "2.0", "1.15", "1.x", "latest"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        minor_of(text)


def test_the_operator_may_do_little_and_reads_no_secrets() -> None:
    roles = [one for one in manifests(Setting(controllers="pod1:8090")) if "rules" in one]
    rules = [rule for role in roles for rule in role["rules"]]
    assert len(roles) == 2
    for rule in rules:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"pods/exec", "configmaps"} & set(rule["resources"])
        if "secrets" in rule["resources"]:
            assert (rule["resources"], rule["verbs"]) == (["secrets"], ["create"])


def test_the_operator_has_a_place_for_keys_though_its_files_are_read_only() -> None:
    pod = manifests(Setting(controllers="pod1:8090"))[-1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert {"name": "tmp", "emptyDir": {"medium": "Memory"}} in pod["volumes"]


@pytest.mark.parametrize(
    ("said", "setting"),
    [
        ({}, {}),
        ({"credentialsSecret": "vipu"}, {"credentials": "vipu"}),
        ({"simulated": "pod16"}, {"simulated": "pod16"}),
    ],
)
def test_the_chart_makes_the_same_objects(said: dict[str, Any], setting: dict[str, Any]) -> None:
    controllers = "pod1:8090:vipu-ctrl=pod1"
    told = {"vipuControllers": controllers, "launcherImage": "site/ipu-operator-launcher"}
    values = VALUES | {
        "global": VALUES["global"] | told,
        # A copy of that chart's own file: images without a program of ours.
        "controller": VALUES["controller"] | {"image": {"repository": "site/ipu-operator"}},
        "podwright": VALUES["podwright"] | said,
    }
    files = chart()
    assert _read(files["values.yaml"]) == VALUES
    assert _read(files["crds/ipujobs.yaml"]) == crd(25)
    made: list[Any] = []
    for name in ("templates/rights.yaml", "templates/operator.yaml"):
        made += _all_read(filled(files[name], values, "podwright"))
    wanted = manifests(Setting(controllers=controllers)._replace(**setting))[2:]
    command = wanted[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    words = made[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    empty = ["--cluster-name=", "--launcher-image=", "--host-network=true"]
    assert [word for word in words if word not in empty] == command
    made[-1]["spec"]["template"]["spec"]["containers"][0]["command"] = command
    assert made == wanted


def test_the_commands_print_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubernetes", "manifests", "--simulated", "pod16", "--for", "1.20"]) == 0
    objects = _all_read(capsys.readouterr().out)
    assert [one["kind"] for one in objects] == [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Deployment",
    ]
    assert main(["kubernetes", "manifests", "--crd"]) == 0
    assert _read(capsys.readouterr().out) == crd(25)


@pytest.mark.parametrize("words", [[], ["--controllers", "a:1", "--simulated", "pod16"]])
def test_where_partitions_come_from_must_be_said(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kubernetes", "manifests", *words]) == 2
    assert "--controllers HOST:PORT" in capsys.readouterr().err


def test_several_controllers_are_chosen_by_the_labels_of_nodes() -> None:
    one, two, three = read_sites("pod5:8090:vipu-ctrl=pod5, pod6:8091, unix:/run/x.sock")
    assert (one.host, one.port, one.selector) == ("pod5", 8090, {"vipu-ctrl": "pod5"})
    assert (two.host, two.port, two.selector) == ("pod6", 8091, {})
    assert three.socket == "/run/x.sock"
    assert [one.fits({"vipu-ctrl": at}) for at in ("pod5", "pod6")] == [True, False]
    assert one.fits({})


@pytest.mark.parametrize("text", ["", ":8090", "a:x", "a:0", "a:1:label", "a:1:=b", "a:70000"])
def test_lists_of_controllers_with_mistakes_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_sites(text)


def _restricted_problems(spec: dict[str, Any]) -> list[str]:
    """What Pod Security's profile `restricted` (v1.34) refuses in a pod's spec."""
    problems = [
        name
        for name in ("hostNetwork", "hostPID", "hostIPC")
        if spec.get(name) not in (None, False)
    ]
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
    allowed |= {"projected", "secret", "name"}
    problems += [kind for volume in spec.get("volumes") or () for kind in volume.keys() - allowed]
    pod = spec.get("securityContext") or {}
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        own = container.get("securityContext") or {}
        both = pod | own
        if own.get("allowPrivilegeEscalation") is not False:
            problems.append(f"{container['name']}: allowPrivilegeEscalation")
        if own.get("privileged") or "ALL" not in (own.get("capabilities") or {}).get("drop", ()):
            problems.append(f"{container['name']}: capabilities")
        if not both.get("runAsNonRoot") or both.get("runAsUser") == 0:
            problems.append(f"{container['name']}: runAsNonRoot")
        profile = (both.get("seccompProfile") or {}).get("type")
        if profile not in ("RuntimeDefault", "Localhost"):
            problems.append(f"{container['name']}: seccompProfile")
    return problems


@pytest.mark.parametrize(
    "setting",
    [
        Setting(controllers="pod1:8090"),
        Setting(simulated="pod16"),
        Setting(controllers="pod1:8090", credentials="key"),
    ],
)
def test_the_operator_passes_the_profile_restricted(setting: Setting) -> None:
    (found,) = [item for item in manifests(setting) if item["kind"] == "Deployment"]
    assert _restricted_problems(found["spec"]["template"]["spec"]) == []


def test_pods_of_a_job_pass_the_profile_restricted_where_its_template_does() -> None:
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = {
        "spec": {
            "securityContext": {"runAsNonRoot": True},
            "containers": [
                {"name": "main", "image": "i", "command": ["run"], "securityContext": secure}
            ],
        }
    }
    item = {
        "metadata": {"namespace": "team", "name": "job", "uid": "u", "generation": 1},
        "spec": {
            "ipusPerJobInstance": "4",
            "jobInstances": 1,
            "launcher": {"command": ["mpirun"]},
            "workers": {"template": template},
        },
    }
    job = read_job(item)
    options = PodOptions(host_network=False, image="podwright:1")
    for make in (
        MakePod("worker", 0, 0, "p1"),
        MakePod("launcher", 0, 0, "p1", (("job-worker-0", "10.0.0.1"),)),
    ):
        pod = build_pod(job, make, {"IPUOF_VIPU_API_HOST": "pod1"}, {}, options)
        assert _restricted_problems(pod["spec"]) == []


def test_prometheus_finds_the_operator_by_its_service() -> None:
    objects = manifests(Setting(controllers="pod1:8090", service_monitor=True))
    by_kind = {item["kind"]: item for item in objects}
    pod = by_kind["Deployment"]["spec"]["template"]
    service, found = by_kind["Service"], by_kind["ServiceMonitor"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert found["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert found["spec"]["endpoints"][0]["port"] == port["name"]
    ports = pod["spec"]["containers"][0]["ports"]
    assert port["targetPort"] in [each["name"] for each in ports]
    kinds = [item["kind"] for item in manifests(Setting(controllers="pod1:8090"))]
    assert "ServiceMonitor" not in kinds


def test_the_charts_schema_takes_its_values_and_refuses_mistakes_of_ours() -> None:
    schema = json.loads(chart()["values.schema.json"])
    ours = schema["properties"]["podwright"]
    assert ours["additionalProperties"] is False
    assert ours["properties"].keys() == VALUES["podwright"].keys()
    assert ours["properties"]["serviceMonitor"] == {"type": "boolean"}
    assert schema["properties"]["global"]["additionalProperties"] is False
    assert schema["properties"]["nameOverride"] == {"type": "string", "maxLength": 0}


def test_options_of_manifests_reach_the_operator(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["kubernetes", "manifests", "--controllers", "a:1"]
    assert main([*words, "--cluster-name", "lab", "--host-network", "false"]) == 0
    printed = capsys.readouterr().out
    assert "--cluster-name=lab" in printed
    assert "--host-network=false" in printed


def test_a_simulated_pod_that_does_not_exist_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["kubernetes", "manifests", "--simulated", "nosuch"]) != 0
    assert "there is no simulated pod 'nosuch'" in capsys.readouterr().err


def test_two_answers_to_who_makes_partitions_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubernetes", "manifests", "--controllers", "a:1", "--simulated", "pod16"]) != 0
    assert "are both given" in capsys.readouterr().err
