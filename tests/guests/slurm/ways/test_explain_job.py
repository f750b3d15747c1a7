"""`vipu explain --job`: Slurm's reason, the obstacles, and what would start."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from podwright.client import Client, FakeTransport
from podwright.errors import InvalidRequest, NotFound
from podwright.guests.slurm.hooks._hook_request_proofs import KeyProofs
from podwright.guests.slurm.hooks._hook_server import HookFront
from podwright.guests.slurm.hooks._hook_socket import listen_tcp
from podwright.guests.slurm.service import Fixed, Mapped, Site, SlurmPod
from podwright.guests.slurm.waiting import explain_job
from podwright.slurm.reader import SHOW_CONFIG, SHOW_RESERVATIONS
from podwright.slurm.site.commands import CommandResult
from podwright.testing import FakeJob, FakeSlurm
from podwright.wire import (
    AllocationInfo,
    AllocationList,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    Explanation,
    GatewayRouting,
    LeaseInfo,
    LeaseList,
    PartitionInfo,
    PartitionList,
    ReadyState,
    Routing,
    Standing,
    SyncType,
    Value,
)
from tests.ports import free_ports

POD = SlurmPod(type="pod16", cluster="pod16", devices=16, largest=16, domain=16)
WAITS = (
    "JobId=9 JobName=x UserId=alice(1001) Priority=5 JobState=PENDING Reason=Licenses "
    "Dependency=(null) "
    "StartTime=2026-11-21T18:00:00 EndTime=Unknown Licenses={licences} "
    "AdminComment=waits for 16 devices of pod16: 8 are free WorkDir=/a b/c"
)


def slurm(
    line: str,
    licences: str = "",
    limit: str = "1:00:00",
    version: str = "26.05.5",
    comment: str = "",
    hidden: str = "podwright_het_wait:1",
) -> FakeSlurm:
    ends = "2026-11-21T17:30:00"

    def answer(argv: Sequence[str]) -> CommandResult | str | None:
        if argv == SHOW_CONFIG:
            return f"SLURM_VERSION           = {version}\n"
        if argv[:-1] == SHOW_RESERVATIONS:
            return f"ReservationName=podwright Licenses={hidden} State=ACTIVE\n"
        if argv[0] == "scontrol":
            return (
                line.format(licences=licences)
                if line
                else CommandResult(1, "", "Invalid job id specified")
            )
        return None

    fake = FakeSlurm(answer)
    fake.jobs = {
        9: FakeJob("PENDING", 0, licences, comment, 0, 5, "Licenses", "N/A"),
        7: FakeJob("RUNNING", 0, "ipu:8", priority=5, end=ends, time_limit=limit),
    }
    return fake


def partition(name: str, size: int, *holders: str, **more: Any) -> PartitionInfo:
    leases = [
        LeaseInfo(id=f"l{k}", partition=name, epoch=k, holder=holder, owner="bob", devices=[0, 1])
        for k, holder in enumerate(holders)
    ]
    return PartitionInfo(
        name=name,
        cluster="pod16",
        allocation="",
        size=size,
        num_gcds=1,
        num_replicas=1,
        num_ilds=1,
        routing=Routing.DEFAULT,
        gw_routing=GatewayRouting.DEFAULT,
        sync_type=SyncType.DEFAULT,
        ready_state=ReadyState.ACTIVE,
        leases=leases,
        **more,
    )


def server(
    *partitions: PartitionInfo, agents: Sequence[str] = (), starts_now: bool = False
) -> Client:
    def answer(method: str, request: Value) -> Value:
        if method == "Explain" and starts_now:
            return Explanation(free=16, largest=16, starts_now=True)
        if method == "Explain":
            return Explanation(
                free=8,
                largest=4,
                partitions=[Standing(partition="slurm_7", owner="bob", size=8)],
                drained=["m4"],
            )
        if method == "ListDevices":
            return DeviceList(
                devices=[
                    DeviceInfo(
                        cluster="pod16",
                        device=DeviceRef(domain=0, offset=at),
                        state="IN_USE" if at < 8 else "FREE",
                        partition="slurm_7" if at < 8 else "",
                    )
                    for at in range(16)
                ]
            )
        if method == "ListPartitions":
            return PartitionList(partitions=list(partitions))
        if method == "GetPartition":
            return partitions[0]
        if method == "ListAllocations":
            return AllocationList(
                allocations=[
                    AllocationInfo(name="c7", cluster="pod16", size=4, free=0, agents=list(agents))
                ]
            )
        return LeaseList(leases=[lease for one in partitions for lease in one.leases])

    return Client(FakeTransport(answer))


async def test_the_jobs_that_end_for_it_are_said() -> None:
    ends = "waits for 16 devices of pod16: 2 jobs of lower rank (7, 8) end for it"
    asked = slurm(WAITS, "ipu:16", comment=ends)
    found = await explain_job(asked, server(), "9", Site(pods=(POD,)))
    assert ends in found.lines


async def test_a_block_that_is_missing_and_whose_jobs_have_it() -> None:
    found = await explain_job(slurm(WAITS, "ipu:16"), server(), "9", Site(pods=(POD,)))
    assert found.asked == "job 9 of alice"
    assert found.problem == "PENDING, it waits for devices (Licenses)"
    assert found.lines == [
        "Slurm expects to start it at 2026-11-21T18:00:00",
        "it waits for 16 devices of pod16 that lie together; 8 are free, "
        "at most 4 of them together",
        "job 7 of bob has 8, until 2026-11-21T17:30:00 at most",
        "machine m4 is drained",
        "16 are free together at 2026-11-21T17:30:00 at the latest, when job 7 ends",
    ]
    assert found.would_work == "--ipus=4 would start now"
    endless = slurm(WAITS, "ipu:16", "UNLIMITED")
    found = await explain_job(endless, server(), "9", Site(pods=(POD,)))
    assert found.lines[2] == "job 7 of bob has 8"
    assert found.lines[-1] == "16 are free together when job 7 ends: no time limit says when"


async def test_a_slurm_newer_than_the_newest_proven_one_says_so() -> None:
    for version, notes in (("26.05.5", 0), ("27.11.0", 1), ("not known", 0)):
        asked = slurm(WAITS, "ipu:16", version=version)
        found = await explain_job(asked, server(), "9", Site(pods=(POD,)))
        told = [line for line in found.lines if line.startswith("this Slurm is 27.11")]
        assert len(told) == notes


async def test_without_the_sites_file_the_server_is_asked_about_all() -> None:
    file = await explain_job(slurm(WAITS, "ipu:16"), server(), "9", None)
    assert file.problem == "PENDING, it waits for devices (Licenses)"
    assert file.would_work == "--ipus=4 would start now"


async def test_partitions_made_beforehand() -> None:
    fixed = [("a", 4), ("b", 4), ("c", 2)]
    site = Site(
        mode="static",
        partitions=tuple(Fixed(name=n, cluster="pod16", size=size) for n, size in fixed),
    )
    there = server(partition("a", 4, "Slurm job 7"), partition("c", 2))
    found = await explain_job(slurm(WAITS, "vipu_4:1"), there, "9", site)
    assert found.lines[1:] == [
        "a: Slurm job 7 of bob has it, until 2026-11-21T17:30:00 at most",
        "b: it is not there",
        "it needs 1 of the partitions of 4 devices, of which 0 are free",
    ]
    assert found.would_work == "--gres=vipu:2 would start now"


async def test_a_part_of_the_shared_one() -> None:
    site = Site(mode="shared", pods=(POD,), shared="all")
    found = await explain_job(
        slurm(WAITS, "ipu:16"), server(partition("all", 16, "Slurm job 7")), "9", site
    )
    assert found.lines[1:] == [
        "it waits for 16 devices of all that lie together; 14 are free, at most 8 of them together",
        "Slurm job 7 of bob has 2, until 2026-11-21T17:30:00 at most",
    ]
    assert found.would_work == "--ipus=8 would start now"


async def test_machines_of_hosts() -> None:
    hosts = tuple(
        Mapped(name=f"n{k}", cluster="pod16", machines=(f"m{k}",), devices=4) for k in (1, 2)
    )
    site = Site(mode="host-mapping", hosts=hosts)
    found = await explain_job(slurm(WAITS), server(agents=["m1"]), "9", site)
    assert found.lines[1:] == [
        "n1: job 7 has its machines, until 2026-11-21T17:30:00 at most",
        "hosts whose machines are free: n2",
    ]


async def test_a_job_whose_service_was_ended_on_purpose_says_so() -> None:
    asked = slurm(WAITS, "ipu:4", hidden="ipu_x1:16,ipu_x2:16,podwright_het_wait:1")
    found = await explain_job(asked, server(starts_now=True), "9", Site(pods=(POD,)))
    assert found.lines[-1] == (
        "`podwright slurm serve` was ended, and hides all devices from Slurm: no job with devices "
        "starts until it runs"
    )
    full = await explain_job(asked, server(), "9", Site(pods=(POD,)))
    assert not any("slurm serve" in line for line in full.lines)


@pytest.mark.parametrize("runs", [True, False])
async def test_a_job_whose_service_was_killed_says_so_on_the_services_host(
    tmp_path: Path, runs: bool
) -> None:
    path = tmp_path / "slurm.sock"
    with socket.socket(socket.AF_UNIX) as service:
        if runs:
            service.bind(str(path))
        else:
            path.touch()  # a killed one leaves its socket
        site = Site(pods=(POD,), socket=str(path))
        found = await explain_job(slurm(WAITS, "ipu:16"), server(), "9", site)
    said = [line for line in found.lines if "does not run on this host" in line]
    assert len(said) == (0 if runs else 1)


@pytest.mark.parametrize("runs", [True, False])
async def test_a_job_whose_service_was_killed_says_so_on_other_hosts(
    tmp_path: Path, runs: bool
) -> None:
    doors = [f"127.0.0.1:{port}" for port in free_ports(2)]
    site = Site(pods=(POD,), socket=str(tmp_path / "none"), listen=",".join(doors))
    front = HookFront()
    if runs:
        place, listener = listen_tcp(site.doors[1:])
        await front.start_remote(listener, KeyProofs(b"a key of this test's"), doors[place + 1])
    found = await asyncio.to_thread(
        asyncio.run, explain_job(slurm(WAITS, "ipu:16"), server(), "9", site)
    )
    await front.finish(1)
    said = [line for line in found.lines if f"does not run at {', '.join(doors)}" in line]
    assert len(said) == (0 if runs else 1)


async def test_a_job_that_runs_says_what_it_holds() -> None:
    line = "JobId=7 UserId=bob(1002) JobState=RUNNING Reason=None EndTime=2026-11-21T17:30:00"
    there = server(partition("slurm_7", 8), partition("all", 16, "Slurm job 7"), agents=["m1"])
    found = await explain_job(slurm(line), there, "7", None)
    assert (found.problem, found.starts_now) == ("RUNNING", True)
    assert found.lines == [
        "partition slurm_7 holds 8 devices, ACTIVE",
        "it holds partition all (devices 0-1 of it)",
        "allocation c7 has m1",
        "its time is over at 2026-11-21T17:30:00",
    ]


async def test_a_job_that_starts_says_what_it_waits_for() -> None:
    line = "JobId=7 UserId=bob(1002) JobState=CONFIGURING Reason=None EndTime=Unknown "
    line += "AdminComment=waits until partition slurm_7 is ready"
    found = await explain_job(slurm(line), server(), "7", None)
    assert found.lines[0].startswith("waits until partition slurm_7 is ready")


async def test_a_job_that_depends_on_nothing_says_nothing_of_it() -> None:
    line = f"{WAITS} Dependency=(null)"
    found = await explain_job(slurm(line, "ipu:16"), server(), "9", Site(pods=(POD,)))
    assert not any("null" in text for text in found.lines)


async def test_what_is_no_job() -> None:
    with pytest.raises(InvalidRequest, match="is not a job"):
        await explain_job(slurm(""), server(), "--all", None)
    with pytest.raises(NotFound, match="knows no job 9"):
        await explain_job(slurm(""), server(), "9", None)
