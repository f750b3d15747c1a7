"""poprun in the launcher of a Kubernetes job: its workers are the hosts, and no server is asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.hosts import KEYS_VARIABLE, WORKER_VARIABLE, WORKERS_VARIABLE
from podwright.launcher import Plan, make_plan, parse
from tests.certificates import JOB_KEYS

POPRUN = str(Path(sys.executable).parent / "poprun")
JOB = {WORKERS_VARIABLE: "w-0=10.0.0.1 w-1=10.0.0.2", "IPUOF_VIPU_API_PARTITION_ID": "p-w"}


def plan(words: str, environ: dict[str, str] = JOB) -> Plan:
    """Return the plan of a command line."""
    return make_plan(parse([*words.split(), "true"]), environ)


def test_the_workers_of_a_job_are_the_hosts_and_its_partition_is_used() -> None:
    found = plan("--num-instances=4 --num-replicas=4")
    assert (found.hosts, found.by_workers, found.given) == (("w-0", "w-1"), True, True)
    assert found.launcher == "local"  # no mpirun is on PATH
    assert "2, by job: w-0, w-1" in str(found)
    assert "the job's operator holds its partition" in str(found)
    one = plan("--num-instances=2 --num-replicas=2 --host=w-1")
    assert (one.hosts, one.by_workers) == (("w-1",), True)
    other = plan("--num-instances=2 --num-replicas=2 --host=elsewhere")
    assert (other.by_workers, other.given, other.wanted.create) == (False, False, False)
    own = plan("--num-instances=2 --num-replicas=2 --vipu-partition=mine")
    assert (own.given, own.wanted.create) == (False, True)
    assert not plan("--num-instances=2 --num-replicas=2", {}).given


def test_a_worker_s_own_poprun_has_the_partition_of_its_pod() -> None:
    pod = {WORKER_VARIABLE: "w-0", "IPUOF_VIPU_API_PARTITION_ID": "p-w"}
    found = plan("--num-instances=1 --num-replicas=16 --ipus-per-replica=4", pod)
    assert (found.given, found.wanted.create, found.launcher) == (True, False, "local")
    assert not plan("--num-instances=2 --num-replicas=2 --host=a,b", pod).given
    assert not plan("--num-instances=1 --num-replicas=1 --vipu-partition=mine", pod).given


def test_workers_on_one_node_s_own_network_are_no_hosts_of_open_mpi() -> None:
    both = JOB | {WORKERS_VARIABLE: "w-0=10.0.0.1 w-1=10.0.0.1 w-2=10.0.0.2"}
    words = "--num-instances=2 --num-replicas=2 --launcher="
    with pytest.raises(InvalidRequest, match=r"w-0 and w-1 are on one node's own network \(10"):
        plan(f"{words}mpirun", both)
    assert plan(f"{words}local", both).launcher == "local"
    assert plan(f"{words}mpirun --host=w-1,w-2", both).launcher == "mpirun"
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "podwright.guests.kubernetes.workers._worker_call",
            "--mpi",
            "w-0",
            "prted",
            "-x",
        ],
        env=os.environ | both,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (255, "")
    assert "w-0 and w-1 are on one node's own network" in done.stderr


@pytest.fixture
def job(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a launcher whose two workers run."""
    environ = {**os.environ, KEYS_VARIABLE: str(JOB_KEYS), "TMPDIR": str(tmp_path)}
    names = [f"w{i}-{uuid.uuid4().hex}" for i in range(2)]
    door = [sys.executable, "-P", "-m", "podwright.guests.kubernetes.workers._worker_door"]
    doors = [
        subprocess.Popen(door, env={**environ, WORKER_VARIABLE: name}, start_new_session=True)
        for name in names
    ]
    yield environ | {
        WORKERS_VARIABLE: " ".join(f"{name}=127.0.0.1" for name in names),
        "IPUOF_VIPU_API_PARTITION_ID": "p-job",
        "PODWRIGHT_SIMULATED": "1",
    }
    for process in doors:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(job: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Return poprun's output."""
    options = ["--num-replicas=4", "--num-instances=2", "--launcher=local"]
    return subprocess.run(
        [POPRUN, *options, *words],
        env=job,
        cwd=job["TMPDIR"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_instances_run_in_their_workers(job: dict[str, str]) -> None:
    script = "echo $RANK $IPUOF_VIPU_API_PARTITION_ID $MASTER_ADDR; exit $RANK"
    done = run(job, "sh", "-c", script)
    assert sorted(line for line in done.stdout.splitlines() if "p-job" in line) == [
        "[1,0]<stdout>: 0 p-job 127.0.0.1",
        "[1,1]<stdout>: 1 p-job 127.0.0.1",
    ], done.stderr
    assert "the devices of partition p-job are simulated" in done.stderr
    assert done.returncode == 1


def test_a_worker_that_is_missing_is_named(job: dict[str, str]) -> None:
    last = job[WORKERS_VARIABLE].split()[1]
    job[WORKERS_VARIABLE] = f"{last} missing=127.0.0.1"
    done = run(job, "true")
    assert done.returncode == 69
    assert "host missing: worker missing: " in done.stderr
    assert "kubectl logs missing" in done.stderr
