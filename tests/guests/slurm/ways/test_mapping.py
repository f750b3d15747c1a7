"""Host mapping: the machines of a job's hosts belong to the job only while it runs."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.service import Mapped, Site
from podwright.guests.slurm.ways import HostMapping
from podwright.testing import FakeJob, FakeNode, FakeSlurm
from podwright.wire import AllocationList, ListRequest, PartitionList
from tests.guests.slurm.ways.world import Pod, asked


@pytest.fixture
def way(pod: Pod, slurm: FakeSlurm) -> HostMapping:
    names = sorted(pod.machines)
    hosts = tuple(
        Mapped(name=f"n{k}", cluster="pod16", machines=(name,), devices=4)
        for k, name in enumerate(names, 1)
    )
    site = Site(mode="host-mapping", hosts=hosts, patience_s=60)
    return HostMapping(site, pod, slurm)


async def test_a_job_gets_the_machines_of_its_hosts_and_gives_them_back(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    whole = await pod.allocations()
    slurm.jobs[7] = FakeJob()
    for _ in range(2):
        assert await way.begin_job(asked(7, hosts="n[1-2],other")) == "allocation=c7\n"
    names = sorted(pod.machines)
    assert await pod.allocations() == {"c7": names[:2]}
    assert slurm.jobs[7].comment == "podwright: allocation=c7"
    await pod.make("p7", 8, allocation="c7")
    for _ in range(2):
        await way.end_job(asked(7, hosts="n[1-2]"))
    assert await pod.allocations() == whole
    assert await way.begin_job(asked(8, hosts="other")) == ""


async def test_a_step_is_told_the_allocation_by_the_servers_record(
    way: HostMapping, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await way.begin_job(asked(7, hosts="n1"))
    again = HostMapping(way.site, way.server, slurm)
    assert await again.prove_step(asked(7)) == "allocation=c7\n"


async def test_the_third_failure_holds_the_job_with_the_reason(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    way.site = Site(mode="host-mapping", hosts=way.site.hosts, patience_s=0.05)
    slurm.jobs[7] = FakeJob()
    slurm.jobs[8] = FakeJob()
    await way.begin_job(asked(7, hosts="n1"))
    for count in (1, 2, 3):
        slurm.jobs[8].state = "CONFIGURING"
        with pytest.raises(InvalidRequest, match=f"try {count} of 3 failed"):
            await way.begin_job(asked(8, hosts="n[1-2]", restart=count - 1))
        slurm.jobs[8].state = "PENDING"
    await asyncio.gather(*way.retry_limit._holding)
    assert slurm.jobs[8].priority == 0
    assert "is in allocation c7" in slurm.jobs[8].comment
    assert "scontrol release 8" in slurm.jobs[8].comment


async def test_a_silent_server_costs_no_try(way: HostMapping, pod: Pod, slurm: FakeSlurm) -> None:
    slurm.jobs[7] = FakeJob()
    pod.silent = True
    with pytest.raises(Unavailable):
        await way.begin_job(asked(7, hosts="n1"))
    assert slurm.jobs[7].comment == ""


async def test_a_job_waits_for_machines_that_come_free(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    slurm.jobs[8] = FakeJob()
    await way.begin_job(asked(7, hosts="n1"))
    waiting = asyncio.create_task(way.begin_job(asked(8, hosts="n1")))
    await asyncio.sleep(0.05)
    await way.end_job(asked(7, hosts="n1"))
    assert await waiting == "allocation=c8\n"


async def test_hosts_that_make_no_allocation_are_refused(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    with pytest.raises(InvalidRequest, match="cannot have 12 IPUs"):
        await way.begin_job(asked(7, hosts="n[1-3]"))


async def test_the_sweep_ends_what_a_hook_missed_and_nothing_that_lives(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    for job in (7, 8):
        slurm.jobs[job] = FakeJob()
        await way.begin_job(asked(job, hosts=f"n{job - 6}"))
    slurm.jobs[7].state = "COMPLETED"
    slurm.down = True
    with pytest.raises(Unavailable):
        await way.sweep()
    slurm.down = False
    again = HostMapping(way.site, pod, slurm)  # a new life knows no more than the server
    slurm.nodes = {
        "n1": FakeNode("drained", "podwright: job 7 refused: why"),
        "n2": FakeNode("drained", "broken by hand"),
    }
    await again.sweep()
    assert list(await pod.allocations()) == ["c8"]
    assert again.swept == 1
    assert {name: node.state for name, node in slurm.nodes.items()} == {
        "n1": "idle",
        "n2": "drained",
    }


async def test_what_stays_behind_is_the_epilogs_failure(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await way.begin_job(asked(7, hosts="n1"))
    await pod.make("p7", 4, allocation="c7")
    machine = pod.machines[sorted(pod.machines)[0]]
    machine.fail_next("release")
    with pytest.raises(InvalidRequest, match="the machines of n1 are not free"):
        await way.end_job(asked(7, hosts="n1"))


async def test_an_end_of_an_earlier_life_changes_nothing(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await way.begin_job(asked(7, hosts="n1", restart=1))
    await way.end_job(asked(7, hosts="n1", restart=0))
    assert list(await pod.allocations()) == ["c7"]


async def test_a_forgotten_jobs_partitions_are_not_passed_on_with_its_number(
    way: HostMapping, pod: Pod, slurm: FakeSlurm
) -> None:
    slurm.jobs[7] = FakeJob()
    await way.begin_job(asked(7, hosts="n1"))
    await pod.make("p7", 4, allocation="c7")
    await way.begin_job(asked(7, hosts="n1"))  # asked again: all of it is still the job's
    found = await pod.call("ListPartitions", ListRequest(), PartitionList)
    assert [one.name for one in found.partitions] == ["p7"]
    await way.begin_job(msgspec.structs.replace(asked(7, hosts="n1"), user="bob", uid=1002))
    found = await pod.call("ListPartitions", ListRequest(), PartitionList)
    assert found.partitions == []
    listed = await pod.call("ListAllocations", ListRequest(), AllocationList)
    assert [(one.name, one.owner) for one in listed.allocations] == [("c7", "bob")]
