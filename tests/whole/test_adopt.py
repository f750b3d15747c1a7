"""Slurm's grant becomes a partition of just those GPUs, or is refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.client import Client, FakeTransport
from podwright.errors import InvalidRequest, WrongState
from podwright.gpu.configure import adopt, read_grant
from podwright.wire import DeviceInfo, DeviceList, DeviceRef, Value
from tests.whole.conftest import Pod, make_pod

__all__ = ["make_pod"]

#: As `scontrol -d -o show job` of Slurm 22.05 has it; what matters not is left out.
SHOWN = (
    "JobId={job} JobName=train UserId={user}({uid}) GroupId=g(1) JobState=RUNNING Reason=None "
    "NumNodes=3 NumCPUs=6 TRES=cpu=6,node=3,billing=6,gres/gpu=7 CoreSpec=* "
    "JOB_GRES=gpu:h100:7 {nodes} "
    "MinCPUsNode=2 TresPerNode=gres:gpu:2 Command=/home/a/Nodes=x CPU_IDs=y\n"
)
NODES = (
    "  Nodes=gpu[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:h100:2(IDX:0,5) "
    "  Nodes=gpu4 CPU_IDs=0-1 Mem=64 GRES=gpu:h100:3(IDX:0-2),shard:h100:0(IDX:N/A)"
)


def shown(job: int = 7, nodes: str = NODES) -> str:
    return SHOWN.format(job=job, user="alice", uid=1001, nodes=nodes)


def test_what_slurm_says_of_a_job() -> None:
    grant = read_grant(shown())
    assert (grant.job, grant.user, grant.uid, grant.state) == ("7", "alice", 1001, "RUNNING")
    assert grant.gpus == (
        *(("gpu1", 0), ("gpu1", 5), ("gpu2", 0), ("gpu2", 5)),
        *(("gpu4", 0), ("gpu4", 1), ("gpu4", 2)),
    )
    untyped = read_grant(shown(nodes="Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)"))
    assert untyped.gpus == tuple(("n1", i) for i in range(4))


@pytest.mark.parametrize("nodes", ["", "Nodes=n1 CPU_IDs=0 Mem=0 GRES="])
def test_a_job_without_gpus_is_refused(nodes: str) -> None:
    with pytest.raises(InvalidRequest, match="job 7 is running and has no GPUs"):
        read_grant(shown(nodes=nodes))
    with pytest.raises(InvalidRequest, match="shows no job"):
        read_grant("slurm_load_jobs error")


def test_slices_are_left_to_slurm() -> None:
    def answer(method: str, request: Value) -> Value:
        assert method == "ListDevices"
        names = ["GPU-1", "MIG-1", "MIG-2"]
        refs = [
            DeviceRef(domain=0, offset=i, machine="gpu1", index=i, chip_id=name)
            for i, name in enumerate(names)
        ]
        return DeviceList(devices=[DeviceInfo(cluster="c", device=ref) for ref in refs])

    grant = read_grant(shown(nodes="Nodes=gpu1 CPU_IDs=0 Mem=0 GRES=gpu:h100_1g.10gb:1(IDX:0)"))
    assert grant.gpus == (("gpu1", 0),)
    with pytest.raises(WrongState, match="GPUs of node gpu1 are cut into slices"):
        adopt(Client(FakeTransport(answer)), grant)


@pytest.fixture
def row(make_pod: Callable[..., Pod]) -> Pod:
    """A server of four nodes of 8, with a Slurm whose scontrol prints what a file has."""
    pod = make_pod("--preset", "hgx8x4")
    tools = pod.folder / "tools"
    tools.mkdir()
    (tools / "scontrol").write_text(f"#!/bin/sh\ncat {pod.folder}/job\n")
    (tools / "scontrol").chmod(0o755)
    pod.environ["PATH"] = f"{tools}:{pod.environ['PATH']}"
    return pod


def test_a_jobs_gpus_are_adopted_checked_and_released(row: Pod) -> None:
    file = Path(row.folder / "job")
    file.write_text(shown())
    adopt = ("podwright", "slurm", "adopt", "7")
    assert json.loads(row.good(*adopt, "--dry-run", "--json"))["partition"] == "job7"
    assert row.partitions() == {}
    for _ in range(2):
        said = row.good(*adopt)
        assert said == (
            "job 7: partition job7 has GPUs "
            "gpu1:0, gpu1:5, gpu2:0, gpu2:5, gpu4:0, gpu4:1, gpu4:2\n"
        )
    (info,) = row.json("vipu", "list", "partitions")
    assert "alice" in json.dumps(info)

    file.write_text(shown(8, "Nodes=gpu1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:5-6)"))
    refused = row.run("podwright", "slurm", "adopt", "8")
    assert refused.code != 0
    assert "GPU 5 of node gpu1 is in partition job7" in refused.err
    file.write_text(shown(8, "Nodes=gpu9 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)"))
    assert "knows no GPU 0 of node gpu9" in row.run("podwright", "slurm", "adopt", "8").err
    file.write_text(shown(7, "Nodes=gpu3 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)"))
    assert "has other GPUs than Slurm gave job 7" in row.run(*adopt).err

    for words in ("is removed", "there is no partition"):
        assert words in row.good(*adopt, "--release")
    assert row.partitions() == {}
