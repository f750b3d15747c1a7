"""The Slurm and the pod in memory do what the real ones do, as far as they go."""

from __future__ import annotations

import asyncio

import pytest

from podwright.errors import AlreadyExists, NoCapacity, Unavailable
from podwright.guests.slurm.service._squeue_jobs import listed
from podwright.slurm.reader import node_listing_command, read_node_listing
from podwright.testing import FakeJob, FakeNode, FakePod, FakeSlurm
from podwright.wire import PartitionSpec


async def test_squeue_lists_what_a_test_set_in_the_columns_that_it_is_asked_for() -> None:
    slurm = FakeSlurm()
    slurm.jobs = {
        7: FakeJob("PENDING", 2, "ipu:4", user_id="5", submitted="1763791311"),
        9: FakeJob("RUNNING"),
    }
    jobs = await listed(slurm)
    assert list(jobs) == [7, 9]
    assert (jobs[7].state, jobs[7].restart, jobs[7].licences) == ("PENDING", 2, "ipu:4")
    assert (jobs[7].uid, jobs[7].submitted, jobs[9].uid) == (5, 1763791311, -1)
    assert list(await listed(slurm, 9, 11)) == [9]
    assert await listed(slurm, 11) == {}
    slurm.down = True
    with pytest.raises(Unavailable, match="Unable to contact slurm controller"):
        await listed(slurm)


async def test_scontrol_finds_a_job_by_each_of_its_names() -> None:
    slurm = FakeSlurm()
    slurm.jobs = {
        5: FakeJob(),
        6: FakeJob(array_job="5", array_task="2"),
        8: FakeJob(het_job=8),
        9: FakeJob(het_job=8),
    }
    for name, number in (("5", 5), ("5_2", 6), ("8+0", 8), ("8+1", 9)):
        await slurm.run("scontrol", "update", f"jobid={name}", f"admincomment={number}")
        await slurm.run("scontrol", "hold", name)
        assert (slurm.jobs[number].comment, slurm.jobs[number].priority) == (str(number), 0)
    assert (await slurm.run("scontrol", "update", "jobid=8+2", "admincomment=x")).code == 0
    assert [job.comment for job in slurm.jobs.values()] == ["5", "6", "8", "9"]


async def test_sinfo_lists_nodes_which_scontrol_drains_and_resumes() -> None:
    slurm = FakeSlurm()
    slurm.nodes = {"n1": FakeNode(), "n2": FakeNode("drained", "by hand")}
    columns = ("node", "state", "reason")
    slurm.text(["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=no fan"])
    drained = slurm.text([*node_listing_command(*columns), "-t", "drain"])
    assert [row["reason"] for row in read_node_listing(drained or "", *columns)] == [
        "no fan",
        "by hand",
    ]
    slurm.text(["scontrol", "update", "NodeName=n1", "State=RESUME"])
    every = slurm.text(node_listing_command(*columns))
    assert [row["state"] for row in read_node_listing(every or "", *columns)] == [
        "idle",
        "drained",
    ]


async def test_a_test_answers_first_and_waits_for_a_command() -> None:
    slurm = FakeSlurm(lambda argv: "own" if argv[0] == "sacct" else None)
    waiting = asyncio.create_task(slurm.wait_for("scontrol", "release"))
    assert (await slurm.run("sacct")).out == "own"
    assert not waiting.done()
    slurm.refusals["release"] = "Access denied"
    assert (await slurm.run("scontrol", "release", "7")).err == "Access denied"
    assert await waiting == ("scontrol", "release", "7")


async def test_a_pod_refuses_what_a_server_refuses() -> None:
    pod = FakePod(8)
    spec = PartitionSpec(name="a", devices=[(0, 0), (0, 1)])
    await pod.create(spec, 5, "alice", "7")
    with pytest.raises(AlreadyExists):
        await pod.create(spec, 5, "alice", "7")
    with pytest.raises(NoCapacity):
        await pod.create(PartitionSpec(name="b", devices=[(0, 1)]), 5, "alice", "7")
    await pod.remove("a", "another job")
    assert [info.state for info in await pod.devices("", "")] == ["IN_USE"] * 2 + ["FREE"] * 6
    await pod.remove("a", "7")
    assert pod.did == ["create a", "remove a"]
    pod.away = True
    with pytest.raises(Unavailable):
        await pod.partitions("", "")
