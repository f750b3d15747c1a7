"""Heterogeneous jobs are offered devices only if nodes can be free for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from podwright.guests.slurm.service import Service, Site
from podwright.guests.slurm.service._node_availability import (
    MIN_LOOK_INTERVAL_S,
    FreeNode,
    NodeAvailability,
    PartNeed,
    unmet_need,
)
from podwright.slurm.site.commands import CommandResult
from podwright.testing import FakePod, FakeSlurm
from tests.guests.slurm.native.test_het import TwoJobs
from tests.guests.slurm.native.test_room import Clock
from tests.guests.slurm.native.test_service import POD
from tests.slurm.reader import texts


def free(name: str, cpus: int, *partitions: str, idle: bool = False) -> FreeNode:
    return FreeNode(name, partitions or ("main",), cpus, idle)


def need(nodes: int, cpus: int, *partitions: str, whole_nodes: bool = False) -> PartNeed:
    return PartNeed(partitions or ("main",), nodes, cpus, whole_nodes)


@pytest.mark.parametrize(
    ("nodes", "needs", "why"),
    [
        ([free("n1", 4)], [need(1, 2), need(1, 2)], ""),
        ([free("n1", 4)], [need(1, 2), need(1, 3)], "free CPUs in main: 4, needed: 5"),
        (
            [free("n1", 4), free("n2", 0)],
            [need(2, 4)],
            "nodes with free CPUs in main: 1, needed: 2",
        ),
        (
            [free("n1", 4)],
            [need(1, 1, whole_nodes=True)],
            "idle nodes in main: 0, needed: 1",
        ),
        ([free("n1", 4, idle=True)], [need(1, 1, whole_nodes=True)], ""),
        ([], [need(1, 1)], "free CPUs in main: 0, needed: 1"),
        ([free("n1", 9, "other")], [need(1, 1)], "free CPUs in main: 0, needed: 1"),
        # A part that may run in either partition takes nothing of one that is full.
        ([free("n1", 2), free("n2", 2, "more")], [need(1, 2), need(1, 2, "main", "more")], ""),
        (
            [free("n1", 2), free("n2", 1, "more")],
            [need(1, 2), need(1, 2, "main", "more")],
            "free CPUs in main,more: 3, needed: 4",
        ),
        ([], [], ""),
    ],
)
def test_what_is_missing_is_named(nodes: list[FreeNode], needs: list[PartNeed], why: str) -> None:
    assert unmet_need(nodes, needs).startswith(why)
    assert bool(unmet_need(nodes, needs)) is bool(why)


class Cluster:
    """One partition of one node of 4 CPUs, of which `used` are busy.

    Jobs 20 and 21 are parts of one heterogeneous job, each of 2 CPUs.
    """

    def __init__(self, used: int = 0, release: str = "26.05.5") -> None:
        self.used, self.release = used, release
        self.settings: dict[str, str] = {}
        self.partition: dict[str, str] = {}
        self.part: dict[str, str] = {}

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        kind = argv[3] if argv[1] == "--oneliner" else argv[2]
        if kind == "config":
            return texts.config(self.release, **self.settings)
        if kind == "partition":
            return texts.partition(self.release, **self.partition)
        if kind == "node":
            state = "IDLE" if not self.used else "MIXED"
            fields = {"CPUTot": "4", "CPUAlloc": str(self.used), "State": state}
            return texts.node(self.release, **fields)
        number = int(argv[4])
        each = {"Partition": "main", "NumCPUs": "2", "NumNodes": "1", **self.part}
        return "".join(
            texts.job("PENDING", self.release, JobId=str(job), HetJobId=str(number), **each)
            for job in (number, number + 1)
        )


@pytest.mark.parametrize("release", texts.RELEASES)
@pytest.mark.parametrize(
    ("used", "changes", "enough"),
    [
        (0, {}, True),
        (1, {}, False),
        (4, {}, False),
        (4, {"settings": {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}}, True),
        (4, {"partition": {"OverSubscribe": "FORCE:4"}}, True),
        (0, {"part": {"NumNodes": "2-4"}}, False),
        (0, {"part": {"Partition": "main,gone"}}, True),
    ],
)
async def test_only_busy_nodes_keep_a_job_from_its_offer(
    release: str, used: int, changes: dict[str, dict[str, str]], *, enough: bool
) -> None:
    cluster = Cluster(used, release)
    for name, value in changes.items():
        setattr(cluster, name, value)
    reason = await NodeAvailability(FakeSlurm(cluster), Clock()).unmet_need([20])
    assert (reason == "") is enough, reason


@pytest.mark.parametrize(
    ("release", "fields"),
    [("22.05.8", {"OverSubscribe": "NO"}), ("26.05.5", {"Exclusive": "NODE"})],
)
async def test_whole_nodes_are_counted_as_each_release_says_it(
    release: str, fields: dict[str, str]
) -> None:
    cluster = Cluster(0, release)
    cluster.part = fields
    reason = await NodeAvailability(FakeSlurm(cluster), Clock()).unmet_need([20])
    assert reason == "idle nodes in main: 1, needed: 2"


async def test_what_is_offered_already_counts_and_looks_are_rare() -> None:
    cluster, clock = Cluster(), Clock()
    slurm = FakeSlurm(cluster)
    room = NodeAvailability(slurm, clock)
    assert await room.unmet_need([20]) == ""
    assert await room.unmet_need([20, 30]) == "free CPUs in main: 4, needed: 8"
    cluster.used = 4
    count = len(slurm.commands)
    assert await room.unmet_need([20]) == ""
    assert len(slurm.commands) == count
    clock.now += MIN_LOOK_INTERVAL_S
    assert await room.unmet_need([20]) == "free CPUs in main: 0, needed: 4"


async def test_what_slurm_does_not_show_keeps_nobody() -> None:
    refuses = FakeSlurm(lambda _: CommandResult(1, "", "Unable to contact slurm controller"))
    assert await NodeAvailability(refuses, Clock()).unmet_need([20]) == ""


class Busy(TwoJobs):
    """The same two jobs, on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(4)
        self.cluster = cluster

    def __call__(self, argv: Sequence[str]) -> CommandResult | str:
        is_show = argv[:2] == ("scontrol", "show") or argv[:3] == ("scontrol", "--oneliner", "show")
        if is_show and "licenses" not in argv:
            return self.cluster(argv)
        return super().__call__(argv)


async def test_devices_are_free_and_nodes_are_not_so_nothing_is_set_aside() -> None:
    clock = Clock()
    jobs = Busy(Cluster(used=4))
    slurm = FakeSlurm(jobs)
    service = Service(Site(pods=(POD,), window_s=3600.0), FakePod(), slurm, clock=clock)
    await service.refresh()
    tasks = [asyncio.create_task(service.counts.run()), asyncio.create_task(service.het.run())]
    service.books["pod16"].close(0xFF, 20, alone=True)  # room that was made for it
    async with asyncio.timeout(120):
        while service.het.declined != {20}:
            await service.counts.wait_until_synced()
        assert not service.books["pod16"].closed
        for _ in range(3):
            await service.counts.wait_until_synced()
            assert not service.het.busy()
        assert jobs.offers == []
        jobs.cluster.used = 0
        clock.now += MIN_LOOK_INTERVAL_S
        while not jobs.offers:
            await service.counts.wait_until_synced()
    assert jobs.offers == ["jobid=20+0"], "4 CPUs are enough for one of them"
    for task in tasks:
        task.cancel()
