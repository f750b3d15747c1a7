"""What goes wrong around a job stands in its status, and its restart policy decides; what comes new
leaves it alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import podwright
from tests.kubernetes.lab import KubeLab, StandIns
from tests.kubernetes.test_ipujobs import World

pytestmark = pytest.mark.kubernetes

ANEW = {"type": "OnFailure"}


@pytest.fixture(scope="module")
def jobs(plane: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(plane, tmp_path_factory.mktemp("troubles"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def nodes(plane: KubeLab) -> Iterator[StandIns]:
    with StandIns(plane.http, 2) as made:
        yield made


def both_run(jobs: World) -> None:
    """Two jobs, one of which restarts when it fails."""
    jobs.create("never")
    jobs.create("anew", restartPolicy=ANEW)
    for name in ("never", "anew"):
        jobs.is_said(name, "Running", "All instances running")


def attempts(jobs: World, name: str) -> int:
    """Return how often it was restarted."""
    count: int = jobs.jobs()[name]["status"]["restartCount"]
    return count


def test_a_job_ends_once_kubernetes_ends_the_pods_of_a_node_that_does_not_answer(
    jobs: World, nodes: StandIns
) -> None:
    both_run(jobs)
    where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in lab_pods(jobs)}
    for ready in ("Unknown", "True", "Unknown"):
        for name in set(where.values()):
            nodes.say(name, ready)
        for job in ("never", "anew"):
            lost = f"node {where[f'{job}-worker-0']} of {job}-worker-0 does not answer"
            words = lost if ready == "Unknown" else "All instances running"
            jobs.is_said(job, "Running", words)
    for name in where:
        jobs.lab.ok("delete", "pod", name, "--wait=false")
    jobs.is_said("never", "Failed", f"node {where['never-worker-0']}")
    jobs.until("anew", lambda: attempts(jobs, "anew") == 1)
    for name in nodes.names:
        nodes.say(name, "True")
    jobs.is_said("anew", "Running", "All instances running")
    jobs.nothing_is_left()


def lab_pods(jobs: World) -> list[dict[str, dict[str, str]]]:
    """Return all pods."""
    found: list[dict[str, dict[str, str]]] = jobs.lab.get("pods")["items"]
    return found


def test_a_job_fails_or_restarts_when_somebody_removes_its_partition(
    jobs: World, nodes: StandIns
) -> None:
    both_run(jobs)
    for name in jobs.partitions():
        jobs.good("vipu", "remove", "partition", name, "--force")
    jobs.is_said("never", "Failed", "has lost its partition")
    jobs.until("anew", lambda: attempts(jobs, "anew") == 1)
    jobs.is_said("anew", "Running", "All instances running")
    assert len(jobs.partitions()) == 1
    jobs.nothing_is_left()


def test_a_job_goes_on_on_a_drained_machine_and_restarts_elsewhere(
    jobs: World, nodes: StandIns
) -> None:
    """What runs on it goes on, and goes elsewhere at a restart."""
    jobs.create("moves", restartPolicy=ANEW)
    jobs.is_said("moves", "Running", "All instances running")
    (name,) = jobs.partitions()
    before = jobs.partitions()[name].gcds
    for machine in ("ag1", "ag2"):
        jobs.good("vipu-admin", "drain", "machine", machine)
    jobs.is_said("moves", "Running", "drained")
    assert attempts(jobs, "moves") == 0
    nodes.end("moves-worker-0", 1)
    jobs.until("anew", lambda: attempts(jobs, "moves") == 1)
    jobs.is_said("moves", "Running", "All instances running")
    assert jobs.partitions()[name].gcds != before
    for machine in ("ag1", "ag2"):
        jobs.good("vipu-admin", "resume", "machine", machine)
    jobs.nothing_is_left()


def test_newer_versions_leave_running_jobs_alone(
    jobs: World, nodes: StandIns, tmp_path: Path
) -> None:
    jobs.create("stays", instances=2)
    jobs.is_said("stays", "Running", "All instances running")
    pods = sorted(pod["metadata"]["uid"] for pod in lab_pods(jobs))
    partitions = sorted(jobs.partitions())
    newer = tmp_path / "podwright"
    shutil.copytree(Path(podwright.__file__).parent, newer)
    (newer / "_version.py").write_text('__version__ = "99.0.0"\n')
    jobs.environ["PYTHONPATH"] = str(tmp_path)
    for name, start in (("server", jobs.start_server), ("operator", jobs.start_operator)):
        jobs.processes[name].terminate()
        jobs.processes[name].wait()
        start()
    assert "99.0.0" in jobs.good("vipu", "--server-version")
    jobs.create("after")  # both are at work
    jobs.is_said("after", "Running", "All instances running")
    jobs.delete("after")
    jobs.until("its end", lambda: len(jobs.partitions()) == 2 and "after" not in jobs.jobs())
    assert sorted(jobs.partitions()) == partitions
    assert sorted(pod["metadata"]["uid"] for pod in lab_pods(jobs)) == pods
    assert attempts(jobs, "stays") == 0
    events = jobs.good("vipu", "events", "--since", "0", "--json").splitlines()
    did = [(one["what"], one["about"]) for one in map(json.loads, events)]
    assert [what for what, about in did if about in partitions] == ["CreatePartition"] * 2
    del jobs.environ["PYTHONPATH"]
    jobs.nothing_is_left()
