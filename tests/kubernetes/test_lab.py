"""The lab's control plane, on which all other tests of this ring rely."""

from __future__ import annotations

import json

import pytest

from tests.kubernetes.lab import DAEMONS, KubeLab, Object, pod

pytestmark = pytest.mark.kubernetes


def settings(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"answer": "42"},
    }


def test_a_plane_takes_objects_and_new_kinds_of_them(plane: KubeLab) -> None:
    names = {"kind": "Lamp", "plural": "lamps", "singular": "lamp"}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"watts": {"type": "integer"}}}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.lab.example"},
        "spec": {"group": "lab.example", "names": names, "scope": "Namespaced"},
    }
    kind["spec"]["versions"] = [version]  # type: ignore[index]
    plane.apply([kind, settings("kept")])
    plane.wait_established("lamps.lab.example")
    assert plane.get("lamps.lab.example")["items"] == []
    lamp = {"apiVersion": "lab.example/v1", "kind": "Lamp", "metadata": {"name": "one"}}
    plane.apply({**lamp, "spec": {"watts": 40}})
    assert plane.get("lamps.lab.example", "one")["spec"] == {"watts": 40}
    refused = plane.kubectl(
        "apply", "-f", "-", stdin=json.dumps({**lamp, "spec": {"watts": "many"}})
    )
    assert refused.returncode != 0
    assert "spec.watts" in refused.stderr
    assert plane.get("configmap", "kept")["data"] == {"answer": "42"}
    assert plane.get("configmap", "never was") == {}
    assert plane.get("lamps.lab.example", "never was") == {}


def test_others_may_do_what_they_were_given(plane: KubeLab) -> None:
    alice = plane.user("alice", ["readers"])
    assert plane.kubectl("get", "nodes", kubeconfig=alice).returncode != 0
    plane.ok("create", "clusterrole", "looks", "--verb=get,list", "--resource=nodes")
    plane.ok("create", "clusterrolebinding", "looks", "--clusterrole=looks", "--group=readers")
    assert plane.ok("auth", "can-i", "list", "nodes", kubeconfig=alice).strip() == "yes"
    assert plane.kubectl("auth", "can-i", "delete", "nodes", kubeconfig=alice).returncode != 0


def test_daemons_that_are_killed_go_on_where_they_were(plane: KubeLab) -> None:
    plane.apply(settings("before"))
    for daemon in DAEMONS:
        plane.kill(daemon)
        plane.restart(daemon)
        plane.wait("what was there", "configmap", "before", lambda found: found.get("data"))
        # The manager makes an account in each namespace; the scheduler says that no pod fits.
        space = f"after-{daemon}"
        plane.ok("create", "namespace", space)
        plane.wait("an account", "serviceaccount", "default", bool, namespace=space)
        plane.apply(pod("nowhere", "true"), namespace=space)
        plane.wait("the scheduler", "pod", "nowhere", is_unschedulable, namespace=space)


def is_unschedulable(found: Object) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(one.get("reason") == "Unschedulable" for one in conditions)
