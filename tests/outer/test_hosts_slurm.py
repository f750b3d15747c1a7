"""poprun inside a Slurm job: it finds the job's nodes, and srun leads there without ssh."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from podwright.launcher.hosts._poprun_liveness import HEARTBEAT_INTERVAL_S, SILENCE
from podwright.launcher.watchers._stop_detection import STILL_SECONDS
from tests.outer.lab import HostsLab, SlurmLab, poll, release

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
REPOSITORY = Path(__file__).parents[2]
POPRUN = f"cd {REPOSITORY}; export CALLS=/tmp/calls; exec {sys.executable} -m tests.launcher.alone"


class Cluster:
    """Three nodes with an ssh that lets nobody in."""

    def __init__(self, hosts: HostsLab, slurm: SlurmLab) -> None:
        self.hosts, self.slurm = hosts, slurm

    def run(self, line: str, *options: str) -> tuple[str, str]:
        """A job's state at its end, and what it wrote."""
        path = str(Path(sys.executable).parent)
        job = self.slurm.submit(f"export PATH={path}:$PATH; {POPRUN} {line}", *options)
        state = self.slurm.wait_over(job)[job].state
        return state, (self.slurm.folder / "out" / f"slurm-{job}.out").read_text()

    def left(self) -> list[str]:
        found = []
        for name in self.hosts.names[1:]:
            for line in self.hosts.exec(name, "ps", "-eo", "args=").stdout.splitlines():
                if any(mark in line for mark in ("_relay", "prted", "mpirun")):
                    found.append(f"{name}: {line}")
            here = self.hosts.exec(name, "ls", "/tmp").stdout.split()
            found += [f"{name}: {n}" for n in here if n not in REPOSITORY.parts]
        return [line for line in found if "calls" not in line]

    def mpirun_processes_that_catch_sigtstp(self, name: str) -> list[str]:
        """Return the processes of mpirun on a host that handle SIGTSTP themselves."""
        lines = self.hosts.exec(name, "ps", "-eo", "caught=,comm=").stdout.splitlines()
        rows = [line.split(None, 1) for line in lines]
        daemons = [(int(mask, 16), command) for mask, command in rows if "prte" in command]
        assert daemons
        return [command for caught, command in daemons if caught >> (signal.SIGTSTP - 1) & 1]

    def leaves_nothing(self) -> None:
        """A guardian outlives its job by what it has to tidy up."""
        poll("an empty cluster", lambda: not self.left())


#: Another Debian's root has what this checkout needs, over it and on this host alone: the checkout,
#: its Python, and the library that one of another Debian does not bring.
_HAS_PYTHON = """set -e
mkdir -p /run/over/files /run/over/work
mount -t overlay overlay -o lowerdir=$0,upperdir=/run/over/files,workdir=/run/over/work $0
for path; do mkdir -p $0$path; mount --rbind $path $0$path; done
cp -a /usr/lib/*/libffi.so.* $0/usr/lib/
"""
#: A job's files in /tmp are this host's.
_HAS_TMP = 'mount --rbind /tmp "$0/tmp"'


@pytest.fixture(scope="module", params=["oldest", pytest.param("newest", marks=pytest.mark.soak)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    found = release(request.param)

    def prepare(hosts: HostsLab, script: str) -> None:
        for name in hosts.names if found.root else ():
            words = (str(found.root), str(REPOSITORY), sys.base_prefix)
            done = hosts.exec(name, "bash", "-c", script, *words)
            assert done.returncode == 0, done.stderr

    with HostsLab(["ctl", "n1", "n2", "n3"]) as hosts:
        prepare(hosts, _HAS_PYTHON)
        with SlurmLab(hosts=hosts, release=found) as slurm:
            prepare(hosts, _HAS_TMP)
            for name in hosts.names:
                (hosts.folder / name / "ssh" / "authorized_keys").write_text("")
            yield Cluster(hosts, slurm)


@pytest.mark.parametrize("launcher", ["auto", "srun"])
def test_the_nodes_of_a_job_are_its_hosts(cluster: Cluster, launcher: str) -> None:
    script = "echo $RANK $LOCAL_RANK $(hostname) $SLURMD_NODENAME"
    line = f"--launcher={launcher} --num-replicas=6 --num-instances=6 sh -c '{script}'"
    state, out = cluster.run(line, "-N3")
    assert state == "COMPLETED", out
    for i in range(6):
        assert f"[1,{i}]<stdout>: {i} {i % 2} n{i // 2 + 1} n{i // 2 + 1}\n" in out
    cluster.leaves_nothing()


def test_mpi_in_a_job(cluster: Cluster) -> None:
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
    line = f'--num-replicas=3 --num-instances=3 {sys.executable} -c "{program}"'
    state, out = cluster.run(line, "-N3")
    assert state == "COMPLETED", out
    assert out.count(">: 3\n") == 3


def test_popdist_without_mpi_in_a_job(cluster: Cluster) -> None:
    program = (
        "import numpy, popdist; popdist.init(); print(popdist.allReduceSum(numpy.ones(2)).tolist())"
    )
    line = f"--launcher=srun --num-replicas=6 --num-instances=6 {sys.executable} -c '{program}'"
    state, out = cluster.run(line, "-N3")
    assert state == "COMPLETED", out
    assert out.count(">: [6.0, 6.0]\n") == 6
    cluster.leaves_nothing()


def test_a_failure_ends_the_job_with_its_code(cluster: Cluster) -> None:
    line = "--launcher=srun --num-replicas=3 --num-instances=3 sh -c 'test $RANK != 1; exit $?'"
    state, out = cluster.run(line, "-N3")
    assert state == "FAILED"
    assert "instance 1 on n2 ended with exit code 1" in out
    cluster.leaves_nothing()


def test_a_host_outside_the_job_is_refused_to_srun(cluster: Cluster) -> None:
    line = "--launcher=srun --host=n1,nx --num-replicas=2 --num-instances=2 true"
    state, out = cluster.run(line, "-N1", "-wn1")
    assert state == "FAILED"
    assert "--launcher=srun works only on nodes of a Slurm job" in out


def test_ctrl_z_stops_the_instances_on_all_nodes_and_fg_goes_on(cluster: Cluster) -> None:
    """In a shell with job control, within a job; srun leads to the other nodes."""
    count = "i=0; while :; do i=$((i + 1)); echo $i >/tmp/n; mv /tmp/n /tmp/c; sleep .05; done"
    look = "srun --overlap -N3 --ntasks-per-node=1 cat /tmp/c | sort"
    # In a shell of its own: a job that stops ends the loops of the shell that has it.
    still = (
        f"for try in $(seq 100); do one=$({look}); sleep 1; two=$({look}); "
        '[ "$one" = "$two" ] && break; done; echo "$two"'
    )
    path = str(Path(sys.executable).parent)
    script = f"""set -m
export PATH={path}:$PATH
( {POPRUN} --num-replicas=3 --num-instances=3 sh -c '{count}' ) &
until [ "$({look} 2>/dev/null | wc -l)" = 3 ]; do sleep .2; done
kill -TSTP %1
second=$(sh -c '{still}')
[ "$({look})" = "$second" ] && echo stopped
kill -CONT %1
for try in $(seq 100); do [ "$({look})" = "$second" ] || {{ echo goes on; break; }}; sleep .2; done
kill -TERM %1
wait %1
echo ended $?
srun --overlap -N3 --ntasks-per-node=1 rm -f /tmp/c /tmp/n
"""
    job = cluster.slurm.submit(f"exec bash -c {shlex.quote(script)}", "-N3")
    state = cluster.slurm.wait_over(job)[job].state
    out = (cluster.slurm.folder / "out" / f"slurm-{job}.out").read_text()
    assert state == "COMPLETED", out
    for line in ("stopped", "goes on", "ended 143"):
        assert f"{line}\n" in out, out
    cluster.leaves_nothing()


def test_suspended_for_longer_than_anybody_waits_it_goes_on_on_all_nodes(cluster: Cluster) -> None:
    """`scontrol suspend` stops watchers and instances alike: whoever wakes first waits for all."""
    count = "i=0; while :; do i=$((i + 1)); echo $i >/tmp/n; mv /tmp/n /tmp/c; sleep .05; done"
    path = str(Path(sys.executable).parent)
    words = f"--num-replicas=3 --num-instances=3 sh -c {shlex.quote(count)}"
    job = cluster.slurm.submit(f"export PATH={path}:$PATH; {POPRUN} {words}", "-N3")

    def counts() -> list[str]:
        nodes = cluster.hosts.names[1:]
        return [cluster.hosts.exec(name, "cat", "/tmp/c").stdout.strip() for name in nodes]

    def all_go_on(since: list[str]) -> bool:
        out = (cluster.slurm.folder / "out" / f"slurm-{job}.out").read_text()
        assert "is lost" not in out, out
        return all(a != b for a, b in zip(since, counts(), strict=True))

    poll("all instances", lambda: all(counts()))
    for name in cluster.hosts.names[1:]:
        assert cluster.mpirun_processes_that_catch_sigtstp(name) == [], (
            "such a one stops instances after the resume"
        )
    cluster.slurm.ok("scontrol", "suspend", str(job))
    # slurmctld calls it suspended before its nodes have heard of it.
    for name in cluster.hosts.names[1:]:
        poll("it stands still", partial(cluster.hosts.stopped, name, "sh -c i=0"))
    first = counts()
    time.sleep(SILENCE + STILL_SECONDS)
    assert counts() == first
    cluster.slurm.ok("scontrol", "resume", str(job))
    poll("all go on", lambda: all_go_on(first))
    second, beats = counts(), time.monotonic() + HEARTBEAT_INTERVAL_S
    poll("another beat", lambda: time.monotonic() > beats)
    poll("still", lambda: all_go_on(second))
    cluster.slurm.ok("scancel", str(job))
    cluster.slurm.wait_over(job)
    out = (cluster.slurm.folder / "out" / f"slurm-{job}.out").read_text()
    assert "is lost" not in out
    for name in cluster.hosts.names[1:]:
        cluster.hosts.exec(name, "rm", "-f", "/tmp/c", "/tmp/n")
    cluster.leaves_nothing()
