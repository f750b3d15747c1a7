"""Placeholders for jobs that hold GPUs by number, on nodes that are played."""

from __future__ import annotations

import re

import pytest

from podwright.errors import FieldNotKnown, InvalidRequest
from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.twin import MOST_NODES_IN_USE, NodeUse, present_from
from podwright.slurm.twin._placeholder_jobs import occupy_nodes

NODES = (
    "NodeName=n1 CPUAlloc=6 AllocMem=3000 Gres=gpu:h100:4(S:0-1) "
    "GresUsed=gpu:h100:3(IDX:0,2-3) State=MIXED\n"
    "NodeName=n2 CPUAlloc=0 AllocMem=0 Gres=gpu:h100:4 GresUsed=gpu:h100:0(IDX:N/A) State=IDLE\n"
    "NodeName=n3 CPUAlloc=8 AllocMem=500 Gres=gpu:a100:1,gpu:h100:1 "
    "GresUsed=gpu:a100:0(IDX:N/A),gpu:h100:0(IDX:N/A)\n"
)
JOB = "JobId=7 JobState=RUNNING Reason=None NodeList=n1 Partition=p   Nodes=n1 CPU_IDs=0-3 "
JOB += "Mem=2000 GRES=gpu:h100:2(IDX:2-3) "


def test_what_any_user_reads_gives_what_each_gpu_in_use_has_beside_it() -> None:
    first, second = present_from(JOB, NODES).uses
    assert first == NodeUse("n1", {0: (2, 1000), 2: (2, 1000), 3: (2, 1000)}, 6, 3000)
    assert second == NodeUse("n3", {}, 8, 500)


def test_where_jobs_are_private_the_cpus_are_shared_evenly() -> None:
    first, _ = present_from("", NODES).uses
    assert first.gpus == {0: (2, 1000), 2: (2, 1000), 3: (2, 1000)}


def test_reservations_keep_their_nodes_times_and_users() -> None:
    output = (
        "ReservationName=maint StartTime=2026-12-01T08:00:00 EndTime=2026-12-02T08:00:00 "
        "Duration=1-00:00:00 Nodes=n[1-2] NodeCnt=2 Flags=MAINT,SPEC_NODES Users=(null) "
        "Accounts=a\nReservationName=none StartTime=now EndTime=now Nodes=(null)\n"
    )
    assert present_from("", "", output).reservations == (
        (
            *("ReservationName=maint", "StartTime=2026-12-01T08:00:00"),
            *("EndTime=2026-12-02T08:00:00", "Nodes=n[1-2]", "Users=root", "Flags=MAINT"),
        ),
    )


def test_how_many_nodes_are_served_is_told() -> None:
    nodes = "".join(
        f"NodeName=n{n} CPUAlloc=1 AllocMem=1 Gres=(null)\n" for n in range(MOST_NODES_IN_USE + 1)
    )
    with pytest.raises(InvalidRequest, match="33 nodes are in use, and placeholders serve 32"):
        present_from("", nodes)


@pytest.mark.parametrize("field", ["CPUAlloc", "AllocMem", "GresUsed"])
def test_a_field_that_slurm_does_not_show_is_not_taken_for_an_idle_node(field: str) -> None:
    with pytest.raises(FieldNotKnown, match=f"not known: {field}"):
        present_from("", NODES.replace(f" {field}=", " Renamed="))


class PlayedNode:
    """A node of Slurm: a job gets the first free GPU of an order, and ends when it is cancelled."""

    def __init__(self, order: tuple[int, ...], cpus: int = 16) -> None:
        self.order, self.cpus = order, cpus
        self.jobs: dict[str, tuple[int, int, int | None]] = {}
        self.commands: list[str] = []
        self.last = 0

    def run(self, argv: list[str]) -> CommandResult:
        self.commands.append(" ".join(argv))
        if argv[0] == "salloc":
            return self.allocate(" ".join(argv))
        if argv[0] == "scancel":
            for job in argv[1:]:
                del self.jobs[job]
        if argv[:2] == ["scontrol", "--oneliner"]:
            _, _, gpu = self.jobs[argv[-1]]
            return CommandResult(
                0, f"NodeList=n1   Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:{gpu})", ""
            )
        return CommandResult(0, "", "")

    def allocate(self, text: str) -> CommandResult:
        cpus, memory = (int(n) for n in re.findall(r"(?:per-task|mem)=(\d+)", text))
        used = {gpu for _, _, gpu in self.jobs.values()}
        free = [gpu for gpu in self.order if gpu not in used]
        if cpus + sum(job[0] for job in self.jobs.values()) > self.cpus or not free:
            return CommandResult(1, "", "salloc: error: Unable to allocate resources")
        self.last += 1
        self.jobs[str(self.last)] = (cpus, memory, free[0] if "gres" in text else None)
        return CommandResult(0, "", f"salloc: Granted job allocation {self.last}")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (3, 1, 2, 0)])
def test_the_same_gpus_cpus_and_memory_are_in_use_whatever_order_slurm_takes(
    order: tuple[int, ...],
) -> None:
    node = PlayedNode(order)
    use = NodeUse("n1", {1: (4, 1000), 3: (2, 500)}, 8, 2000)
    assert occupy_nodes([use], [], node.run) == ()
    assert sorted(node.jobs.values(), key=str) == sorted(
        [(4, 1000, 1), (2, 500, 3), (2, 500, None)], key=str
    )


def test_a_node_that_cannot_be_made_alike_takes_no_job() -> None:
    node = PlayedNode((0, 1, 2, 3), cpus=4)
    use = NodeUse("n1", {0: (4, 1000), 3: (2, 500)}, 6, 1500)
    assert occupy_nodes([use], [("ReservationName=r",)], node.run) == ("n1",)
    assert node.commands[-2:] == [
        "scontrol create reservation ReservationName=r",
        "scontrol update NodeName=n1 State=DRAIN Reason=unlike",
    ]
