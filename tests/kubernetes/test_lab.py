"""The lab itself: what all other tests of this ring take for granted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kubernetes.lab import DAEMONS, KubeLab, Object
from tests.kubernetes.lab._cgroups import PREFIX, hierarchies
from tests.outer.lab._folder import processes_of

pytestmark = pytest.mark.kubernetes


def pod(name: str, script: str, node: str = "", **spec: object) -> Object:
    """One that runs a script of shell once."""
    container = {
        "name": "main",
        "image": "localhost/busybox:lab",
        "command": ["sh", "-ec", script],
    }
    where = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never", **where, **spec},
    }


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
    plane.ok("wait", "--for=condition=Established", "crd/lamps.lab.example", "--timeout=300s")
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


@pytest.mark.parametrize("daemon", DAEMONS)
def test_a_daemon_that_is_killed_goes_on_where_it_was(
    kube_lab: Callable[..., KubeLab], daemon: str
) -> None:
    lab = kube_lab()
    lab.apply(settings("before"))
    lab.kill(daemon)
    lab.restart(daemon)
    lab.wait("what was there", "configmap", "before", lambda found: found.get("data"))
    lab.apply(settings("after"))
    # The manager makes an account in each namespace, the scheduler says where it cannot put a pod.
    lab.ok("create", "namespace", "new")
    lab.wait("an account", "serviceaccount", "default", bool, namespace="new")
    lab.apply(pod("nowhere", "true"), namespace="new")
    lab.wait(
        "the scheduler",
        "pod",
        "nowhere",
        lambda found: found["status"].get("conditions", [{}])[0].get("reason") == "Unschedulable",
        namespace="new",
    )


def test_pods_run_and_say_how_they_ended(cluster: KubeLab) -> None:
    cluster.apply(
        [pod("good", "echo it is $(hostname); ls /bin/busybox"), pod("bad", "echo no; exit 42")]
    )
    cluster.wait_phase("good", "Succeeded")
    assert cluster.ok("logs", "good").splitlines() == ["it is good", "/bin/busybox"]
    ended = cluster.wait_phase("bad", "Failed")["status"]["containerStatuses"][0]
    assert ended["state"]["terminated"]["exitCode"] == 42
    assert cluster.ok("logs", "bad") == "no\n"
    cluster.ok("delete", "pod", "good", "bad")


def test_pods_of_two_nodes_reach_each_other_and_the_api_server(cluster: KubeLab) -> None:
    listening = "while true; do echo from $(hostname) | nc -l -p 4000; done"
    cluster.apply(pod("far", listening, "n2"))
    address = cluster.wait_phase("far", "Running")["status"]["podIP"]
    asking = (
        f"until nc {address} 4000 </dev/null | grep -x 'from far'; do sleep 0.2; done; "
        "nc $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached; "
        "ls /var/run/secrets/kubernetes.io/serviceaccount"
    )
    cluster.apply(pod("near", asking, "n1"))
    cluster.wait_phase("near", "Succeeded")
    said = cluster.ok("logs", "near").split()
    assert said == ["from", "far", "reached", "ca.crt", "namespace", "token"]
    assert cluster.ok("exec", "far", "--", "cat", "/proc/1/cmdline").startswith("sh")
    cluster.ok("delete", "pod", "near", "far", "--grace-period=0", "--force")


def test_a_node_crashes_and_comes_back(kube_lab: Callable[..., KubeLab]) -> None:
    # Sooner than a real cluster would: kubelets report each second.
    lab = kube_lab(
        nodes=2,
        options={"kube-controller-manager": {"node-monitor-grace-period": "20s"}},
    )
    lab.apply([pod("here", "sleep 100000", "n1"), pod("there", "sleep 100000", "n2")])
    for name in ("here", "there"):
        lab.wait_phase(name, "Running")
    lab.node("n2").kill()
    assert not lab.node("n2").is_up
    lab.wait_for_nodes("n2", ready=False)
    lab.wait_for_nodes("n1")
    lab.node("n2").revive()
    lab.wait_for_nodes("n2")
    lab.apply(pod("again", "echo back", "n2"))
    lab.wait_phase("again", "Succeeded")
    assert lab.ok("logs", "again") == "back\n"

    # What runs goes on while kubelet and containerd are away.
    node = lab.node("n1")
    began = container(lab, "here")
    for name in ("kubelet", "containerd"):
        before = node.daemon_pid(name)
        node.kill_daemon(name, signal.SIGKILL)
        node.restart_daemon(name)
        assert node.daemon_pid(name) != before
    lab.apply(pod("more", "true", "n1"))
    lab.wait_phase("more", "Succeeded")
    assert container(lab, "here") == began


def container(lab: KubeLab, name: str) -> tuple[str, int]:
    """Which one a pod's is, and how often it was begun again."""
    status = lab.get("pod", name)["status"]["containerStatuses"][0]
    assert status["state"]["running"]
    return status["containerID"], status["restartCount"]


def test_nothing_is_left_of_a_lab_and_the_kernels_settings_stay() -> None:
    settings = [Path("/proc/sys") / name for name in ("vm/overcommit_memory", "kernel/panic")]
    before = [path.read_text() for path in settings]
    with KubeLab(nodes=1) as lab:
        lab.apply(pod("runs", "sleep 100000"))
        lab.wait_phase("runs", "Running")
        assert [path.read_text() for path in settings] == before
        assert processes_of(lab.folder)
        groups = [group for part in lab.node("n1").cgroups.all for group in part.at.iterdir()]
        assert any(group.name.startswith(f"{PREFIX}{lab.folder.name}") for group in groups)
    assert not lab.folder.exists()
    assert not processes_of(lab.folder)
    for part in hierarchies(Path("/proc/self/mountinfo").read_text()):
        assert not [name for name in os.listdir(part.at) if lab.folder.name in name]
