"""The division of GPUs that Slurm granted, and its conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.hosts import Cores, CpuCore, scattered, srun_command
from podwright.hosts.gpus import STANDINS
from podwright.launcher import Plan, make_plan, parse
from podwright.launcher.instances import _divide_gpus as gpus
from podwright.launcher.instances._divide_gpus import (
    GpuShare,
    TooFewGpus,
    environment_for_step,
    shares,
)

CORES = Cores(tuple(CpuCore(n // 4, n // 4, (n, n + 8)) for n in range(8)), (0, 1))
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1,2,3"}


@pytest.fixture
def described(tmp_path: Path) -> dict[str, str]:
    """Four GPUs on two NUMA nodes of eight processors each."""
    path = tmp_path / "gpus.toml"
    path.write_text("gpus = 4\nnuma_nodes = 2\n")
    return {"PODWRIGHT_STANDIN_NVML": str(path), "CUDA_VISIBLE_DEVICES": "0,1,2,3"}


def own(found: list[GpuShare]) -> list[str]:
    return [share.variables["PODWRIGHT_OWN_GPUS"] for share in found]


def test_each_instance_has_its_own_gpus_and_the_cores_beside_them(
    described: dict[str, str],
) -> None:
    found = shares(4, 1, "task", "spreadnuma", CORES, described)
    assert own(found) == ["0", "1", "2", "3"]
    assert all(
        s.variables["CUDA_VISIBLE_DEVICES"] == s.variables["PODWRIGHT_OWN_GPUS"] for s in found
    )
    assert [share.cpus for share in found] == ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]
    assert all(share.variables["PODWRIGHT_SIMULATED"] == "1" for share in found)


def test_an_instance_may_have_two_gpus(described: dict[str, str]) -> None:
    found = shares(2, 2, "task", "spreadnuma", CORES, described)
    assert own(found) == ["0,1", "2,3"]
    assert [share.cpus for share in found] == ["0-3,8-11", "4-7,12-15"]


def test_an_instance_with_gpus_of_both_numa_nodes_is_bound_to_none(
    described: dict[str, str],
) -> None:
    assert [share.cpus for share in shares(1, 4, "task", "spreadnuma", CORES, described)] == [""]


def test_an_instance_may_see_all_gpus_of_its_host_its_own_first(described: dict[str, str]) -> None:
    some = described | {"CUDA_VISIBLE_DEVICES": "3,0,2"}
    found = shares(3, 1, "node", "disabled", CORES, some)
    assert own(found) == ["0", "3", "2"]
    assert {share.variables["CUDA_VISIBLE_DEVICES"] for share in found} == {"0,3,2"}


def test_where_cores_were_chosen_the_nearest_gpus_are(described: dict[str, str]) -> None:
    swapped = Cores(tuple(reversed(CORES.cores[:1] + CORES.cores[7:])), (0, 1))
    found = shares(2, 1, "task", "scatternuma", swapped, described)
    by_cpu = {share.cpus: share.variables["PODWRIGHT_OWN_GPUS"] for share in found}
    assert by_cpu == {"0,8": "0", "7,15": "2"}


def test_a_name_stays_the_name_that_slurm_gave(described: dict[str, str]) -> None:
    from podwright.hosts.gpus import take_inventory

    uuids = [gpu.uuid for gpu in take_inventory(described).gpus]
    some = described | {"CUDA_VISIBLE_DEVICES": f"{uuids[2]},{uuids[0]}"}
    assert own(shares(2, 1, "task", "disabled", None, some)) == [uuids[0], uuids[2]]


def test_gpus_are_divided_by_number_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_DRIVERS", ())
    found = shares(2, 1, "task", "spreadnuma", CORES, {"CUDA_VISIBLE_DEVICES": "5,7"})
    assert own(found) == ["5", "7"]
    (found,) = [shares(1, 2, "task", "disabled", None, {"ROCR_VISIBLE_DEVICES": "0,1"})]
    assert found[0].variables["ROCR_VISIBLE_DEVICES"] == "0,1"
    with pytest.raises(TooFewGpus, match="has 2 GPUs here, and 3 instances need 3"):
        shares(3, 1, "task", "disabled", None, {"CUDA_VISIBLE_DEVICES": "5,7"})


def plan(line: str, environ: dict[str, str]) -> Plan:
    return make_plan(parse([*line.split(), "true"]), environ)


def test_a_job_with_gpus_needs_no_server() -> None:
    found = plan("--num-replicas=4 --num-instances=2", JOB)
    assert found.gpus == (2, "task")
    assert "none: Slurm gave the GPUs" in str(found)
    assert "partition" not in str(found)
    assert plan("--gpu-visibility=node", {"SLURM_JOB_ID": "7"}).gpus == (1, "node")


def test_other_devices_that_were_named_are_used_instead_of_gpus() -> None:
    for line, more in (
        ("--vipu-partition=p", {}),
        ("--offline-mode=yes", {}),
        ("", {"IPUOF_VIPU_API_PARTITION_ID": "p"}),
        ("", {"PODWRIGHT_LEASE": "7"}),
        ("", {"PODWRIGHT_SOCKET": "/x"}),
    ):
        assert plan(line, JOB | more).gpus == ()
    assert plan("", {"SLURM_JOB_ID": "7"}).gpus == ()
    assert plan("", {"CUDA_VISIBLE_DEVICES": "0"}).gpus == ()


def test_gpu_visibility_outside_a_job_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="is for GPUs that Slurm granted"):
        plan("--gpu-visibility=task", {})


def test_a_step_asks_for_what_its_host_needs(tmp_path: Path) -> None:
    left = environment_for_step(
        {"SLURM_GPUS_PER_TASK": "1", "SLURM_TRES_BIND": "x", "SLURM_JOB_ID": "7"}
    )
    assert left == {"SLURM_JOB_ID": "7"}
    srun = tmp_path / "srun"
    srun.touch(0o755)
    command = srun_command("n1", ["true"], {"PATH": str(tmp_path)}, gpu_count=3)
    assert command is not None
    assert "--gres=gpu:3" in command
    assert gpus.STANDINS == STANDINS


TREE = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""


def test_a_launch_warns_of_nodes_on_more_switches_than_needed() -> None:
    assert scattered(["n1", "n2"], TREE) == ""
    assert scattered(["n1", "n2", "n3"], TREE) == ""
    said = scattered(["n2", "n3"], TREE)
    assert "2 nodes of the job hang on 2 switches (leaf1, leaf2), and 1 could hold them" in said
    assert "--switches=1" in said
    blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2]\nBlockName=b2 BlockIndex=1 Nodes=n[3-4]\n"
    assert "(b1, b2)" in scattered(["n2", "n3"], blocks)
    assert scattered(["n2", "x"], TREE) == ""
    assert scattered(["n2", "n3"], "") == ""
