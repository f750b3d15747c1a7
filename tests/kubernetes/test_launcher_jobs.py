"""Jobs with a launcher on real nodes: poprun reaches the workers, whatever their image has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.lab import (
    DIGITS_IMAGE,
    GATEWAY,
    MPI_IMAGE,
    PODWRIGHT_IMAGE,
    KubeLab,
    worker_images,
)
from tests.kubernetes.test_ipujobs import World

#: Minutes on a busy machine.
pytestmark = [pytest.mark.kubernetes, pytest.mark.soak]

PORT = "8090"  # in the network of the lab's own
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"
BUSYBOX = "localhost/busybox:lab"
POPRUN = ("poprun", "--num-replicas=2", "--num-instances=2")


class LauncherWorld(World):
    """A world whose controller also answers pods, and whose operator has Podwright's image."""

    server_words = ("--api-host", GATEWAY, "--api-port", PORT, "--listen-anywhere")

    @property
    def operator_words(self) -> list[str]:
        """Where pods reach the controller, and what is put into them."""
        more = ["--seen-as", f"{GATEWAY}:{PORT}", "--image", PODWRIGHT_IMAGE]
        return [*super().operator_words, *more]

    def wrap(self, words: list[str]) -> list[str]:
        """Let pods reach only the network of the lab."""
        return self.lab.wrap(words) if words[0].endswith("vipu-server") else words

    def launch(self, name: str, *command: str, image: str = BUSYBOX, **more: Any) -> None:
        """Start a job whose launcher runs a program in two workers, one on each node, by poprun."""
        self.start_in_two(name, *POPRUN, *command, image=image, **more)

    def start_in_two(self, name: str, *command: str, image: str, **more: Any) -> None:
        """Start a job with that launcher."""
        main = {"name": "main", "image": image}
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"podwright.graphcore.ai/role": "worker"}},
        }
        template = {"spec": {"containers": [main], "topologySpreadConstraints": [apart]}}
        self.create(
            name,
            workersPerJobInstance="2",
            workers={"template": template},
            launcher={"command": list(command)},
            **more,
        )

    def ended(self, name: str, state: str, words: str = "") -> str:
        """Wait for the end of a job. Returns its launcher's output."""

        def over() -> bool:
            status = self.lab.get("ipujob", name).get("status") or {}
            return bool(status.get("completionTime"))

        self.until(f"the end of {name}", over)
        said = self.lab.ok("logs", f"{name}-launcher")
        status = self.lab.get("ipujob", name)["status"]
        assert (status["launcherStatus"], words in status["lastMessage"]) == (state, True), said
        return said


@pytest.fixture(scope="module")
def jobs(cluster: KubeLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherWorld]:
    for archive in worker_images(cluster.binaries, tmp_path_factory.mktemp("images")):
        cluster.load(archive)
    made = LauncherWorld(cluster, tmp_path_factory.mktemp("jobs"))
    yield made
    made.stop()


def test_digits_are_trained_over_two_workers(jobs: LauncherWorld) -> None:
    words = ["--epochs", "5"]
    program = ["python3", "/opt/python/train_digits.py", *words]
    jobs.launch("digits", *program, image=DIGITS_IMAGE)

    def nodes() -> set[str]:
        pods = [one for one in jobs.lab.get("pods")["items"] if "worker" in one["metadata"]["name"]]
        return {pod["spec"].get("nodeName", "") for pod in pods}

    # Workers go once the launcher has ended.
    jobs.until("a worker on each node", lambda: nodes() == {"n1", "n2"})
    said = jobs.ended("digits", "Completed", "All instances done")
    alone = subprocess.run(
        [sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=True
    ).stdout
    assert "replicas: 2, instances: 2" in said
    for line in alone.splitlines()[1:]:  # epochs with their losses, and the accuracy
        assert line in said, said
    jobs.until("no partitions", lambda: not jobs.partitions())
    jobs.nothing_is_left()


@pytest.mark.parametrize("words", [("mpirun", "--allow-run-as-root", "-np", "2"), POPRUN])
def test_open_mpi_reaches_workers_without_ssh(jobs: LauncherWorld, words: tuple[str, ...]) -> None:
    script = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE in $(hostname)"'
    jobs.start_in_two("mpi", *words, "sh", "-c", script, image=MPI_IMAGE)
    said = jobs.ended("mpi", "Completed", "All instances done")
    for rank in range(2):
        assert f"{rank} of 2 in mpi-worker-{rank}" in said
    jobs.nothing_is_left()


def test_the_exit_code_of_a_launcher_decides(jobs: LauncherWorld) -> None:
    policy = {"type": "ExitCode", "exitCodes": "10-19", "backOffLimit": 1}
    script = 'echo "$RANK of $WORLD_SIZE"; [ "$RANK" = 0 ] || exit '
    jobs.launch("again", "sh", "-c", f"{script}12", restartPolicy=policy)
    said = jobs.ended("again", "Failed", "again-launcher ended with exit code 12")
    assert "1 of 2" in said
    assert jobs.jobs()["again"]["status"]["restartCount"] == 1
    jobs.launch("once", "sh", "-c", f"{script}9", restartPolicy=policy)
    jobs.ended("once", "Failed", "once-launcher ended with exit code 9")
    assert jobs.jobs()["once"]["status"]["restartCount"] == 0
    jobs.nothing_is_left()


def test_a_program_of_one_pod_runs_as_sites_wrote_them(jobs: LauncherWorld) -> None:
    """Shared memory of its own, the host's IPC, a lock on memory, poprun in the worker itself."""
    words = "poprun --allow-run-as-root 1 --vv --num-instances 1 --num-replicas 4"
    line = (
        f"{words} --ipus-per-replica 2 --launcher local sh -c 'echo $RANK on $WHERE; df /dev/shm'"
    )
    main = {
        "name": "main",
        "image": PODWRIGHT_IMAGE,
        "command": ["/bin/sh", "-c", "--"],
        "args": [f"cd;\nexport WHERE=$IPUOF_VIPU_API_PARTITION_ID;\n{line}\n"],
        "resources": {"limits": {"cpu": "200m", "memory": "500Mi"}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "devshm"}],
    }
    pod = {
        "containers": [main],
        "restartPolicy": "Never",
        "hostIPC": True,
        "volumes": [{"name": "devshm", "emptyDir": {"medium": "Memory", "sizeLimit": "10Mi"}}],
    }
    jobs.create("own", ipus=8, modelReplicasPerWorker="4", workers={"template": {"spec": pod}})
    jobs.is_said("own", "Completed", "All instances done")
    said = jobs.lab.ok("logs", "own-worker-0")
    assert "0 on p-own-default-0-" in said
    assert "tmpfs" in said
    jobs.nothing_is_left()


def test_a_worker_proves_its_partition_before_its_program(jobs: LauncherWorld) -> None:
    main = {"name": "main", "image": BUSYBOX, "command": ["sleep", "100000"]}
    jobs.create("holds", workers={"template": {"spec": {"containers": [main]}}})
    jobs.is_said("holds", "Running", "All instances running")
    pod = jobs.lab.get("pod", "holds-worker-0")
    (prepared,) = pod["status"]["initContainerStatuses"]
    assert prepared["state"]["terminated"]["exitCode"] == 0
    # The same pod, late: its partition is no more.
    (name,) = jobs.partitions()
    late = json.loads(json.dumps({key: pod[key] for key in ("apiVersion", "kind", "spec")}))
    late["metadata"] = {"name": "late"}
    del late["spec"]["nodeName"]
    late = json.loads(json.dumps(late).replace(name, f"{name[:-1]}x"))
    jobs.lab.ok("create", "-f", "-", stdin=json.dumps(late))
    jobs.lab.wait_phase("late", "Failed")
    status = jobs.lab.get("pod", "late")["status"]
    assert "partition" in status["initContainerStatuses"][0]["state"]["terminated"]["message"]
    assert "waiting" in status["containerStatuses"][0]["state"]
    jobs.lab.ok("delete", "pod", "late", "--wait=false")
    jobs.nothing_is_left()
