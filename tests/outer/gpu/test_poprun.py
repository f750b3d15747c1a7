"""poprun in a job on real Slurm: it divides the GPUs that each host was granted."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.gpu.truth import make_gpus
from tests.outer.lab import HostsLab, SlurmLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
REPOSITORY = Path(__file__).parents[3]
POPRUN = f"cd {REPOSITORY}; exec {sys.executable} -P -m podwright.cli.poprun"
TELL = "echo $RANK $LOCAL_RANK [$CUDA_VISIBLE_DEVICES] [$PODWRIGHT_OWN_GPUS] ${PODWRIGHT_CPUS:-all}"
FOUR = "--num-replicas=4 --num-instances=4"


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    """Two hosts of four GPUs on two NUMA nodes, which divide this machine's processors."""
    with HostsLab(["ctl", "n1", "n2", "n3"]) as hosts:
        lab = SlurmLab(
            cpus=8,
            conf={"GresTypes": "gpu", "TopologyPlugin": "topology/tree"},
            files={
                "gres.conf": "AutoDetect=off\n"
                "NodeName=n[1-3] Name=gpu Type=a100 File=@LAB@/gpu[0-3]\n",
                "gpus.toml": f"gpus = 4\nnuma_nodes = 2\ncpus = {os.cpu_count()}\n",
                "topology.conf": "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3\n"
                "SwitchName=top Switches=a,b\n",
            },
            node_extra="Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 Gres=gpu:a100:4",
            hosts=hosts,
        )
        make_gpus(lab)
        with lab:
            yield lab


def run(lab: SlurmLab, line: str, *options: str, standin: bool = True) -> tuple[str, str]:
    """A job's state at its end, and what it wrote."""
    standin_is = f"export PODWRIGHT_STANDIN_NVML={lab.folder}/gpus.toml; " if standin else ""
    path = str(Path(sys.executable).parent)
    job = lab.submit(f"{standin_is}export PATH={path}:$PATH; {POPRUN} {line}", *options)
    state = lab.wait_over(job)[job].state
    return state, (lab.folder / "out" / f"slurm-{job}.out").read_text()


def told(out: str) -> list[str]:
    return sorted(re.findall(r"<stdout>: (\d.*)", out))


@pytest.mark.parametrize("asked", ["--gpus-per-node=2", "--gpus-per-task=1 --ntasks-per-node=2"])
def test_each_instance_has_the_nearest_of_its_own(lab: SlurmLab, asked: str) -> None:
    line = f"--launcher=srun {FOUR} sh -c '{TELL}'"
    state, out = run(lab, line, "-N2", *asked.split())
    assert state == "COMPLETED", out
    rows = [row.split() for row in told(out)]
    assert [row[:2] for row in rows] == [["0", "0"], ["1", "1"], ["2", "0"], ["3", "1"]]
    assert all(row[2] == row[3] for row in rows)
    for host in (rows[:2], rows[2:]):
        assert len({row[2] for row in host}) == 2
    assert "SIMULATED" in out


def test_all_of_the_host_may_be_seen(lab: SlurmLab) -> None:
    line = f"--launcher=srun --gpu-visibility=node {FOUR} sh -c '{TELL}'"
    state, out = run(lab, line, "-N1", "--gpus-per-node=4")
    assert state == "COMPLETED", out
    rows = [row.split() for row in told(out)]
    assert [row[2:4] for row in rows] == [["[0,1,2,3]", f"[{n}]"] for n in range(4)]


def test_several_gpus_of_an_instance(lab: SlurmLab) -> None:
    line = f"--num-replicas=2 --num-instances=1 --ipus-per-replica=2 sh -c '{TELL}'"
    state, out = run(lab, line, "-N1", "--gres=gpu:4")
    assert state == "COMPLETED", out
    assert told(out)[0].startswith("0 0 [0,1,2,3] [0,1,2,3]")


def test_without_a_library_the_numbers_do(lab: SlurmLab) -> None:
    line = f"--launcher=srun {FOUR} sh -c '{TELL}'"
    state, out = run(lab, line, "-N2", "--gpus-per-node=2", standin=False)
    assert state == "COMPLETED", out
    assert [row.split()[2] for row in told(out)] == ["[0]", "[1]", "[0]", "[1]"]


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_too_few_are_refused_with_what_to_ask_for(lab: SlurmLab, nodes: str) -> None:
    line = f"--launcher=srun --num-replicas=6 --num-instances=6 sh -c '{TELL}'"
    state, out = run(lab, line, f"-N{nodes}", "--gpus-per-node=1")
    assert state == "FAILED"
    each = 6 // int(nodes)
    if nodes == "1":
        assert f"the job has 1 GPUs here, and {each} instances need {each}" in out
    assert f"--gpus-per-node={each}" in out


def test_a_grant_that_lost_the_switches_is_told(lab: SlurmLab) -> None:
    line = f"--launcher=srun --num-replicas=2 --num-instances=2 sh -c '{TELL}'"
    state, out = run(lab, line, "-N2", "-w", "n2,n3", "--gpus-per-node=1")
    assert state == "COMPLETED", out
    assert "2 nodes of the job hang on 2 switches (a, b), and 1 could hold them" in out
    state, out = run(lab, line, "-N2", "-w", "n1,n2", "--gpus-per-node=1")
    assert state == "COMPLETED", out
    assert "could hold them" not in out
