"""IPUJobs on real nodes: workers of an image with a shell and without Python run, and die.

On planes without nodes (test_ipujobs.py) tests act as kubelets; here real ones report.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.kubernetes.lab import DAEMONS, KubeLab
from tests.kubernetes.test_ipujobs import World

#: Minutes on a busy machine, most of them the death of a node: 40 s until Kubernetes says so.
pytestmark = [pytest.mark.kubernetes, pytest.mark.soak]

#: Ends when somebody makes that file in it.
WAITS = "until [ -e /tmp/go ]; do sleep 0.2; done; echo went"


@pytest.fixture(scope="module")
def jobs(cluster: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(cluster, tmp_path_factory.mktemp("jobs"))
    yield made
    made.stop()


#: How long Kubernetes leaves a pod alone whose node does not answer; 300 s by default.
SHORT_PATIENCE = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 5,
}


def workers(script: str, node: str = "") -> dict[str, Any]:
    """Start a job's workers, which run a script of shell, on that node or on any."""
    main = {"name": "main", "image": "localhost/busybox:lab", "command": ["sh", "-ec", script]}
    where = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {"template": {"spec": {"containers": [main], "tolerations": [SHORT_PATIENCE], **where}}}


def went(jobs: World, pod: str) -> None:
    """Let a worker that WAITS end."""
    jobs.lab.ok("exec", pod, "--", "touch", "/tmp/go")


def said(jobs: World, pod: str, words: str) -> bool:
    """Return whether that is the whole output of a worker."""
    return jobs.lab.ok("logs", pod) == words


def kill(jobs: World, name: str) -> None:
    """Kill the "operator" or the "server", at once."""
    jobs.processes[name].kill()
    jobs.processes[name].wait()


def containers(jobs: World) -> dict[str, str]:
    """Return the container of each pod, and how often it was started."""
    found = {}
    for pod in jobs.lab.get("pods")["items"]:
        for status in pod["status"].get("containerStatuses", []):
            found[pod["metadata"]["name"]] = f"{status['containerID']} {status['restartCount']}"
    return found


def test_two_workers_run_with_four_devices_each(jobs: World) -> None:
    jobs.create("pair", instances=2, workers=workers(f"echo $IPUOF_VIPU_API_PARTITION_ID; {WAITS}"))
    jobs.is_said("pair", "Running", "All instances running")
    found = jobs.partitions()
    names = sorted(found)
    assert [found[name].size for name in names] == [4, 4]
    for worker, name in zip(("pair-worker-0", "pair-worker-1"), names, strict=True):
        jobs.until(name, partial(said, jobs, worker, f"{name}\n"))
        assert jobs.lab.kubectl("exec", worker, "--", "python3", "-V").returncode != 0
        went(jobs, worker)
    jobs.is_said("pair", "Completed", "All instances done")
    jobs.until("no partitions", lambda: not jobs.partitions())
    assert jobs.lab.ok("logs", "pair-worker-1").splitlines()[-1] == "went"
    jobs.nothing_is_left()


def test_exit_codes_of_programs_decide(jobs: World) -> None:
    policy = {"type": "ExitCode", "exitCodes": "10-19", "backOffLimit": 1}
    jobs.create("again", workers=workers("exit 12"), restartPolicy=policy)
    jobs.is_said("again", "Failed", "exit code 12")
    assert jobs.jobs()["again"]["status"]["restartCount"] == 1
    jobs.create("once", workers=workers("exit 9"), restartPolicy=policy)
    jobs.is_said("once", "Failed", "exit code 9")
    assert jobs.jobs()["once"]["status"]["restartCount"] == 0
    jobs.nothing_is_left()


def test_a_full_pod_is_waited_for(jobs: World) -> None:
    jobs.create("large", ipus=16, workers=workers(WAITS))
    jobs.is_said("large", "Running")
    jobs.create("small", workers=workers("true"))
    jobs.is_said("small", "Pending", "IPU")
    assert jobs.pods() == ["large-worker-0"]
    went(jobs, "large-worker-0")
    for name in ("large", "small"):
        jobs.is_said(name, "Completed")
    jobs.nothing_is_left()


def test_a_running_job_outlives_the_death_of_every_daemon(jobs: World) -> None:
    jobs.create("stays", instances=2, workers=workers(WAITS))
    jobs.is_said("stays", "Running", "All instances running")
    before = containers(jobs), sorted(jobs.partitions())
    for daemon in DAEMONS:
        jobs.lab.kill(daemon)
        kill(jobs, "operator")
        jobs.start_operator()
        jobs.lab.restart(daemon)
    kill(jobs, "server")
    jobs.start_server()
    # Another one is served: all of them are at work again.
    jobs.create("after", workers=workers("true"))
    jobs.is_said("after", "Completed")
    jobs.delete("after")
    jobs.until("its end", lambda: "after" not in jobs.jobs() and len(jobs.partitions()) == 2)
    assert (containers(jobs), sorted(jobs.partitions())) == before
    for worker in ("stays-worker-0", "stays-worker-1"):
        went(jobs, worker)
    jobs.is_said("stays", "Completed")
    assert jobs.jobs()["stays"]["status"]["restartCount"] == 0
    jobs.nothing_is_left()


def test_a_job_is_told_that_its_node_died(jobs: World) -> None:
    jobs.create("never", workers=workers(WAITS, "n2"))
    jobs.create("anew", workers=workers(WAITS, "n2"), restartPolicy={"type": "OnFailure"})
    for name in ("never", "anew"):
        jobs.is_said(name, "Running")
    node = jobs.lab.node("n2")
    node.kill()
    jobs.is_said("never", "Failed", "node n2")
    jobs.is_said("anew", "Restarting", "node n2")
    # Its pods may still run, for all that Kubernetes knows: the devices stay theirs.
    assert len(jobs.partitions()) == 2
    node.revive()
    jobs.lab.wait_for_nodes("n2")
    jobs.is_said("anew", "Running", "All instances running")
    assert jobs.jobs()["anew"]["status"]["restartCount"] == 1
    went(jobs, "anew-worker-0")
    jobs.is_said("anew", "Completed")
    jobs.nothing_is_left()
