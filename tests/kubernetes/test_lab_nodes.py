"""The lab's real nodes: pods run on them, and they die and come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kubernetes.lab import KubeLab, pod
from tests.kubernetes.lab._cgroups import PREFIX, hierarchies
from tests.outer.lab._folder import processes_of

pytestmark = pytest.mark.kubernetes


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


def test_a_node_crashes_and_comes_back(cluster: KubeLab) -> None:
    node = cluster.node("n2")
    cluster.apply(pod("there", "sleep 100000", "n2"))
    cluster.wait_phase("there", "Running")
    node.kill()
    assert not node.is_up
    cluster.wait_for_nodes("n2", ready=False)
    cluster.wait_for_nodes("n1")
    node.revive()
    cluster.wait_for_nodes("n2")
    cluster.apply(pod("again", "echo back", "n2"))
    cluster.wait_phase("again", "Succeeded")
    assert cluster.ok("logs", "again") == "back\n"
    cluster.ok("delete", "pod", "there", "again", "--grace-period=0", "--force")


def test_pods_go_on_while_kubelet_and_containerd_are_away(cluster: KubeLab) -> None:
    node = cluster.node("n1")
    cluster.apply(pod("here", "sleep 100000", "n1"))
    cluster.wait_phase("here", "Running")
    began = container(cluster, "here")
    for name in ("kubelet", "containerd"):
        before = node.daemon_pid(name)
        node.kill_daemon(name)
        node.restart_daemon(name)
        assert node.daemon_pid(name) != before
    cluster.apply(pod("more", "true", "n1"))
    cluster.wait_phase("more", "Succeeded")
    assert container(cluster, "here") == began
    cluster.ok("delete", "pod", "here", "more", "--grace-period=0", "--force")


def container(lab: KubeLab, name: str) -> tuple[str, int]:
    """Which one a pod's is, and how often it was begun again."""
    status = lab.get("pod", name)["status"]["containerStatuses"][0]
    assert status["state"]["running"]
    return status["containerID"], status["restartCount"]


@pytest.mark.usefixtures("_clean_start")
def test_nothing_is_left_of_a_lab_and_the_kernels_settings_stay() -> None:
    kernel = [Path("/proc/sys") / name for name in ("vm/overcommit_memory", "kernel/panic")]
    before = [path.read_text() for path in kernel]
    with KubeLab(nodes=1) as lab:
        lab.apply(pod("runs", "sleep 100000"))
        lab.wait_phase("runs", "Running")
        assert [path.read_text() for path in kernel] == before
        assert processes_of(lab.folder)
        groups = [group for part in lab.node("n1").cgroups.all for group in part.at.iterdir()]
        assert any(group.name.startswith(f"{PREFIX}{lab.folder.name}") for group in groups)
    assert not lab.folder.exists()
    assert not processes_of(lab.folder)
    for part in hierarchies(Path("/proc/self/mountinfo").read_text()):
        assert not [name for name in os.listdir(part.at) if lab.folder.name in name]
