"""The removal of Graphcore's operator, and of ours: no namespace stays in Terminating."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from podwright.guests.kubernetes import FINALIZER
from tests.kubernetes.lab import KubeLab
from tests.kubernetes.test_ipujobs import BIN, World

pytestmark = pytest.mark.kubernetes

#: Whatever they are called: what of Graphcore's stands there goes with ours.
GRAPHCORES = "ipujob.finalizers.graphcore.ai"
SPACE = "leaves"


@pytest.fixture(scope="module")
def jobs(plane: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(plane, tmp_path_factory.mktemp("removal"))
    yield made
    made.stop()


def put(jobs: World, name: str, *marks: str) -> None:
    """Create an IPUJob in a namespace of its own, in the state in which another operator left
    it.
    """
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"ipusPerJobInstance": "4", "jobInstances": 1, "workers": {"template": template}}
    item = {
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name, "namespace": SPACE, "finalizers": list(marks)},
        "spec": spec,
    }
    jobs.lab.ok("create", "--validate=false", "-f", "-", stdin=json.dumps(item))


def is_gone(jobs: World) -> bool:
    """Return whether the namespace is gone, with everything in it."""
    return not jobs.lab.get("namespace", SPACE)


def holds_one(jobs: World) -> bool:
    """Return whether the job has its partition, and is marked."""
    found = jobs.lab.get("ipujobs", namespace=SPACE)["items"]
    marks = [one["metadata"].get("finalizers", []) for one in found]
    return len(jobs.partitions()) == 1 and any(FINALIZER in one for one in marks)


def test_a_namespace_goes_with_jobs_of_graphcores_operator(jobs: World) -> None:
    jobs.lab.ok("create", "namespace", SPACE)
    put(jobs, "old", GRAPHCORES)
    jobs.until("it is taken over", lambda: holds_one(jobs))
    jobs.lab.ok("delete", "namespace", SPACE, "--wait=false")
    jobs.until("no namespace", lambda: is_gone(jobs))
    jobs.until("no partitions", lambda: not jobs.partitions())


def test_an_operator_that_is_gone_holds_no_namespace(jobs: World) -> None:
    jobs.lab.ok("create", "namespace", SPACE)
    put(jobs, "kept", GRAPHCORES)
    jobs.until("it has its partition", lambda: holds_one(jobs))
    words = ["--kubeconfig", str(jobs.lab.kubeconfig), "--controllers", f"unix:{jobs.socket}"]
    jobs.processes["operator"].kill()
    jobs.processes["operator"].wait()
    jobs.lab.ok("delete", "namespace", SPACE, "--wait=false")
    done = subprocess.run(
        [BIN / "podwright", "kubernetes", "remove", *words],
        env=jobs.environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert f"job {SPACE}/kept: nothing is left" in done.stdout
    jobs.lab.wait("no namespace", "namespace", SPACE, lambda found: not found, namespace="default")
    assert not jobs.partitions()
    jobs.start_operator()


def test_removal_ends_nothing_while_an_operator_acts(jobs: World) -> None:
    jobs.create("stays")
    jobs.until("a worker", lambda: jobs.pods() == ["stays-worker-0"])
    words = ["--kubeconfig", str(jobs.lab.kubeconfig), "--controllers", f"unix:{jobs.socket}"]
    done = subprocess.run(
        [BIN / "podwright", "kubernetes", "remove", *words],
        env=jobs.environ,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 75
    assert "an operator acts" in done.stderr
    assert jobs.pods() == ["stays-worker-0"]
    jobs.nothing_is_left()
