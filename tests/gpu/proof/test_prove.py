"""What is proved of planned files, with answers of Slurm that are played."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from podwright.gpu.configure import PlannedPartition, make_inventory
from podwright.gpu.proof import planned_files, prove
from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.site.file_changes import FileChanges
from podwright.slurm.twin import (
    FilledTwin,
    Granted,
    GrantedNode,
    Refused,
    Submission,
    Waits,
)

INVENTORY = make_inventory(
    {
        "nodes": [
            {
                "names": "g[1-2]",
                "sockets": 2,
                "cores_per_socket": 8,
                "memory": 64000,
                "gpus": {"type": "h100", "count": 4},
            }
        ]
    }
)
NODE = (
    "NodeName={} Arch=x86_64 CoresPerSocket=8 CPUAlloc=0 CPUTot=16 AvailableFeatures=(null) "
    "Gres=gpu:h100:4 RealMemory=64000 AllocMem=0 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Partitions=gpu"
)


class PlayedTwin:
    """Two nodes, of whose GPUs so many can be used."""

    def __init__(self, usable: int, answer: Granted | Waits | Refused, *, alone: bool = False):
        self.usable, self.answer, self.alone = usable, answer, alone
        self.filled: list[Submission] = []
        self.default = True
        self.slurmd = CommandResult(0, "Gres Name=gpu Type=h100 Count=1", "")
        self.asked: list[Submission] = []

    def show(self, *words: str) -> str:
        if "node" in words:
            return "\n".join(NODE.format(name) for name in ("g1", "g2")) + "\n"
        share = "EXCLUSIVE" if self.alone else "NO"
        default = "YES" if self.default else "NO"
        return (
            f"PartitionName=gpu Nodes=g[1-2] OverSubscribe={share} ExclusiveUser=NO "
            f"Default={default} State=UP\n"
        )

    def slurmd_reads_gres(self, node_name: str, gres_text: str) -> CommandResult:
        return self.slurmd

    def fill(self, requests: Sequence[Submission]) -> FilledTwin:
        self.filled += requests
        jobs = tuple(
            Granted((GrantedNode(name, (at,), 1000, (at,)),), "gpu", "")
            for name in ("g1", "g2")
            for at in range(self.usable)
        )
        return FilledTwin(jobs, (Waits("Resources", ""),), ())

    def ask(self, request: Submission) -> Granted | Waits | Refused:
        self.asked.append(request)
        return self.answer


def problems(twin: PlayedTwin) -> dict[str, str]:
    return {proof.text: proof.problem for proof in prove(twin, INVENTORY, (26, 5), "")}


def test_without_a_default_partition_no_job_is_tried_without_one() -> None:
    twin = PlayedTwin(4, Granted((), "gpu", ""))
    twin.default = False
    named = INVENTORY._replace(partitions=(PlannedPartition("gpu", ("g1", "g2")),))
    assert not [proof for proof in prove(twin, named, (26, 5), "") if proof.problem]
    assert twin.asked
    assert all("--partition=gpu" in request.options for request in twin.asked)


@pytest.mark.parametrize(
    ("code", "output", "problem"),
    [
        (1, "slurmd-g1: fatal: gres.conf duplicate records for mps", "duplicate records for mps"),
        (0, "[2026-01-01T00:00:00] error: unknown autodetect flag 'nvlm'", "unknown autodetect"),
        (1, "slurmd: error: Parsing error at unrecognized key: Tipe", "unrecognized key: Tipe"),
        (0, "[2026-01-01T00:00:00] error: Domain socket directory /run/x: No such file", ""),
    ],
)
def test_slurmd_says_whether_it_reads_gres_conf(code: int, output: str, problem: str) -> None:
    twin = PlayedTwin(4, Granted((), "gpu", ""))
    twin.slurmd = CommandResult(code, "", output)
    found = problems(twin)["slurmd of g1 reads gres.conf"]
    assert (problem in found) if problem else found == ""
    twin.slurmd = CommandResult(127, "", "")
    first = next(prove(twin, INVENTORY, (26, 5), ""))
    assert (first.problem, first.not_known) == ("", "there is no slurmd here")


@pytest.mark.parametrize(("version", "known"), [((22, 5), False), ((26, 5), True)])
def test_where_a_twin_counts_reserved_cores_otherwise_nothing_is_known(
    version: tuple[int, int], *, known: bool
) -> None:
    kind = next(iter(INVENTORY.kinds()))._replace(core_spec_count=2)
    reserving = INVENTORY._replace(nodes={"g1": kind, "g2": kind})
    twin = PlayedTwin(4, Refused("sbatch: error: Requested node configuration is not available"))
    proofs = [
        proof for proof in prove(twin, reserving, version, "") if proof.text.startswith("template")
    ]
    assert proofs
    assert all(bool(proof.problem) == known for proof in proofs)
    assert all(bool(proof.not_known) != known for proof in proofs)


def test_every_gpu_in_use_and_every_template_started_is_no_problem() -> None:
    twin = PlayedTwin(4, Granted((), "gpu", ""))
    proofs = problems(twin)
    assert "one-GPU jobs fill g[1-2] in partition gpu" in " ".join(proofs).replace(
        "g1, g2", "g[1-2]"
    )
    assert any(text.startswith("template torchrun on 2 nodes") for text in proofs)
    assert set(proofs.values()) == {""}
    assert twin.filled[0].options[-1] == "--array=0-7"


def test_idle_gpus_are_told_with_what_the_jobs_take_and_slurms_reason() -> None:
    proofs = problems(PlayedTwin(3, Granted((), "gpu", "")))
    (problem,) = (problem for problem in proofs.values() if problem)
    assert problem == (
        "g1, g2: 3 of 4 GPUs of g1 are in use by 3 jobs with 3 of 16 CPUs and 3000 of 64000 MiB; "
        "Slurm: the next job waits (Resources)"
    )


def test_where_a_job_gets_whole_nodes_one_on_each_fills_them() -> None:
    twin = PlayedTwin(1, Granted((), "gpu", ""), alone=True)
    assert set(problems(twin).values()) == {""}
    assert twin.filled[0].options[-1] == "--array=0-1"


def test_a_template_that_is_refused_or_waits_has_slurms_own_line() -> None:
    line = "sbatch: error: Batch job submission failed: Memory specification can not be satisfied"
    proofs = problems(PlayedTwin(4, Refused(line)))
    refused = [problem for text, problem in proofs.items() if text.startswith("template")]
    assert refused
    assert all("Memory specification can not be satisfied (--" in text for text in refused)
    proofs = problems(PlayedTwin(4, Waits("PartitionTimeLimit", "")))
    assert any("waits (PartitionTimeLimit) on idle nodes" in text for text in proofs.values())


def test_planned_files_are_those_on_disk_with_the_plan_carried_out(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("include more/nodes.conf\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "nodes.conf").write_text("NodeName=old\n")
    (tmp_path / "gres.conf").write_text("Name=gpu\n")
    (tmp_path / "topology.conf").write_text("SwitchName=s\n")
    plan = FileChanges(texts={conf: "include more/nodes.conf\nA=1\n"})
    plan.texts[tmp_path / "topology.conf"] = None
    files = planned_files(conf, plan)
    assert files.slurm_conf == "NodeName=old\nA=1"
    assert (files.gres_conf, files.topology_conf) == ("Name=gpu", "")
    assert conf.read_text() == "include more/nodes.conf\n"
