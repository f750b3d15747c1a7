"""Puts together what stands in a job's way: Slurm says for what it waits, the server who has it.

Nothing here needs a right that an ordinary user lacks: Slurm's own commands, the server's lists,
and the site's file, which anybody may read. Without that file the server is asked about all of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from podwright.client import Client
from podwright.slurm.pods.service import (
    Listed,
    Site,
    SlurmPod,
    in_short,
    listed,
    of_job,
    parse_licences,
)
from podwright.slurm.pods.waiting._show_job import ShownJob, find
from podwright.slurm.pods.waiting._when import soonest
from podwright.slurm.site.commands import Slurm
from podwright.wire import Explanation, LeaseInfo, PartitionInfo, PartitionSpec

#: Slurm's reasons, as a user who waits would say them. Others stand as they are.
_REASONS: Final = {
    "Licenses": "it waits for devices",
    "Reservation": "it waits for devices",
    "Resources": "it waits for nodes",
    "Priority": "jobs of higher priority wait before it",
    "Dependency": "it waits for other jobs",
    "BeginTime": "its time to begin has not come",
    "JobHeldUser": "its user held it",
    "JobHeldAdmin": "an administrator held it",
    "None": "Slurm has not looked at it yet",
}
#: How a comment of a waiting job's begins that says nothing more; and what job_submit wrote before.
_SAID: Final = ("podwright:", "waits for", "its partitions are free")
_HEAD: Final = re.compile(r"(?:ipus=\d+|vipu=)[^;]*(?:; |$)")
#: What is said of free devices, where it may be so.
_TURN: Final = ": it waits for nodes or for its turn"
_TURNS: Final = ("Licenses", "Reservation", "Resources", "Priority", "None")
_PLAIN: Final = (SlurmPod(type="pod", cluster="", devices=0, largest=0, domain=0),)


async def explain_job(slurm: Slurm, client: Client, name: str, site: Site | None) -> Explanation:
    """Why a job waits, what would start now, or what it holds. Raises PodwrightError."""
    job = await find(slurm, name)
    action = f"job {job.name} of {job.user}"
    if job.state != "PENDING":
        return _begun(job, client, action)
    reason = job.fields.get("Reason") or "None"
    words = _REASONS.get(reason, f"Slurm says {reason}")
    if reason == "Resources" and job.get("HetJobId"):
        words = "it waits for nodes or for devices"  # of these Slurm tells no difference
    problem = f"{job.state}, {words} ({reason})"
    lines = _times(job)
    # What the sweep wrote there last is said anew below.
    comment = _HEAD.sub("", job.get("AdminComment") or "")
    if comment and ("emptied for" in comment or not comment.startswith(_SAID)):
        lines.append(comment)
    found = _in_the_way(job, site, client, await listed(slurm))
    if reason not in _TURNS:
        known = [line.removesuffix(_TURN) for line in found.lines]
        found = msgspec.structs.replace(found, lines=known)
    return msgspec.structs.replace(
        found, asked=action, problem=problem, lines=[*lines, *found.lines]
    )


def _in_the_way(
    job: ShownJob, site: Site | None, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """What the server knows of it, in the site's way."""
    licences = parse_licences(job.get("Licenses"))
    if site is not None and site.mode == "static":
        return _shelf(licences, site, client, jobs)
    if site is not None and site.mode == "host-mapping":
        return _machines(site, client, jobs)
    known = jobs.get(job.id)
    pods = site.pods if site else _PLAIN
    wants = known.wants(pods) if known else None
    found = wants[:2] if wants else of_job(licences, pods)
    if found is None:
        return Explanation()
    if site is not None and site.shared:
        return _part(found[1], site.shared, client, jobs)
    return _block(*found, client, jobs)


def _begun(job: ShownJob, client: Client, action: str) -> Explanation:
    """A job that waits for nothing: what it holds, and until when."""
    mine = [one for one in client.list_partitions() if one.name == f"slurm_{job.id}"]
    lines = [
        f"partition {one.name} holds {one.size} devices, {one.ready_state.value}" for one in mine
    ]
    for lease in client.list_leases():
        if _job_of(lease.holder) == job.id and not lease.parent:
            part = f" (devices {_ranges(lease.devices)} of it)" if lease.devices else ""
            lines.append(f"it holds partition {lease.partition}{part}")
        if lease.move and lease.partition in {one.name for one in mine}:
            within = f"within {lease.move_within:.0f} s"
            lines.append(f"it is asked to move to other devices {within}, and goes on there")
    for one in client.list_allocations():
        if one.name == f"c{job.id}":
            lines.append(f"allocation {one.name} has {', '.join(one.agents)}")
    if end := job.get("EndTime"):
        living = job.state in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED")
        lines.append(f"its time is over at {end}" if living else f"it ended at {end}")
    return Explanation(asked=action, problem=job.state, lines=lines, starts_now=True)


def _block(pod: SlurmPod, size: int, client: Client, jobs: Mapping[int, Listed]) -> Explanation:
    """Native mode: a block of a pod."""
    spec = PartitionSpec(name="job", size=size, cluster=pod.cluster, allocation=pod.allocation)
    found = client.explain(spec=spec, for_job=True)
    if found.starts_now:
        return Explanation(lines=[_free_for_it(size)], free=found.free, starts_now=True)
    lines = [_needs(size, pod.type, found.free, found.largest)]
    for one in found.partitions:
        who = _holder(one.partition, one.owner, jobs)
        ends = _until(jobs.get(_job_of_partition(one.partition)))
        lines.append(f"{who} has {one.size}{ends}")
    lines += [f"machine {name} does not answer" for name in found.down]
    lines += [f"machine {name} is drained" for name in found.drained]
    devices = client.list_devices(cluster=pod.cluster, allocation=pod.allocation)
    end, holders = soonest(devices, size, jobs)
    who = f"job {holders[0]} ends" if len(holders) == 1 else f"jobs {_list(holders)} end"
    if end is None:
        lines.append(f"no block of {size} comes free by itself: machines are away, or others' stay")
    elif end[:1].isdigit():
        lines.append(f"{size} are free together at {end} at the latest, when {who}")
    elif end:
        lines.append(f"{size} are free together when {who}: no time limit says when")
    return Explanation(
        lines=lines,
        free=found.free,
        largest=found.largest,
        fragmented=found.fragmented,
        partitions=found.partitions,
        down=found.down,
        drained=found.drained,
        would_work=_smaller(found.largest),
    )


def _part(size: int, partition: str, client: Client, jobs: Mapping[int, Listed]) -> Explanation:
    """A shared partition: a part of it."""
    info = client.get_partition(partition)
    lines = []
    whole = list(range(info.size))
    free = set(whole) if info.ready_state.value == "ACTIVE" else set()
    if not free:
        lines.append(f"partition {info.name} is {info.ready_state.value}")
    for lease in info.leases:
        if lease.parent:
            continue
        mine = lease.devices or whole
        free -= set(mine)
        ends = _until(jobs.get(_job_of(lease.holder)))
        lines.append(
            f"{in_short(lease.holder) or lease.owner} of {lease.owner} has {len(mine)}{ends}"
        )
    largest = _largest(free, info.size)
    fits = largest >= size
    return Explanation(
        lines=[_free_for_it(size) if fits else _needs(size, partition, len(free), largest), *lines],
        starts_now=fits,
        free=len(free),
        largest=largest,
        would_work="" if fits else _smaller(largest),
    )


def _shelf(
    licences: Mapping[str, int], site: Site, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """Static partitions: those of the sizes that it asked for, and which other sizes are free."""
    there = {one.name: one for one in client.list_partitions()}
    free: dict[int, int] = {}
    lines = []
    for one in site.partitions:
        info = there.get(one.name)
        holder = _in_use(info)
        usable = info is not None and info.ready_state.value == "ACTIVE" and holder is None
        free[one.size] = free.get(one.size, 0) + usable
        if not licences.get(one.licence) or usable:
            continue
        if holder is not None:
            ends = _until(jobs.get(_job_of(holder.holder)))
            who = f"{in_short(holder.holder) or holder.owner} of {holder.owner}"
            lines.append(f"{one.name}: {who} has it{ends}")
        else:
            state = info.ready_state.value if info else "not there"
            lines.append(f"{one.name}: it is {state}")
    wanted = {one.size: licences.get(one.licence, 0) for one in site.partitions}
    for size, count in sorted(wanted.items()):
        if count:
            words = f"it needs {count} of the partitions of {size} devices"
            lines.append(f"{words}, of which {free[size]} are free")
    short = any(free[size] < count for size, count in wanted.items())
    others = [f"--gres=vipu:{size}" for size, count in sorted(free.items()) if count]
    return Explanation(
        lines=lines,
        would_work=f"{' or '.join(others)} would start now" if short and others else "",
    )


def _machines(site: Site, client: Client, jobs: Mapping[int, Listed]) -> Explanation:
    """Host mapping: Slurm chooses hosts, and whose machines are taken decides whether it works."""
    busy = {m: one.name for one in client.list_allocations() for m in one.agents}
    free, lines = [], []
    for host in site.hosts:
        names = {busy[m] for m in host.machines if m in busy} - {host.cluster}
        for name in sorted(names):
            job = int(name[1:]) if name[1:].isdecimal() else 0
            who = f"job {job}" if job in jobs else f"allocation {name}"
            lines.append(f"{host.name}: {who} has its machines{_until(jobs.get(job))}")
        free += [] if names else [host.name]
    lines.append(f"hosts whose machines are free: {', '.join(free) or 'none'}")
    return Explanation(lines=lines)


# -- words -----------------------------------------------------------------------------------


def _times(job: ShownJob) -> list[str]:
    lines = []
    if waiting := job.get("Dependency"):
        lines.append(f"it depends on {waiting}")
    if start := job.get("StartTime"):
        lines.append(f"Slurm expects to start it at {start}")
    return lines


def _until(job: Listed | None) -> str:
    """When a job's time is over, where Slurm limits it."""
    return f", until {job.end} at most" if job and job.end[:1].isdecimal() else ""


def _job_of(holder: str) -> int:
    word = in_short(holder).removeprefix("Slurm job ").partition(" ")[0].partition("/")[0]
    return int(word) if holder.startswith("Slurm job ") and word.isdecimal() else 0


def _job_of_partition(name: str) -> int:
    word = name.removeprefix("slurm_")
    return int(word) if name.startswith("slurm_") and word.isdecimal() else 0


def _holder(partition: str, owner: str, jobs: Mapping[int, Listed]) -> str:
    job = _job_of_partition(partition)
    return f"job {job} of {owner}" if job in jobs else f"partition {partition} of {owner}"


def _in_use(info: PartitionInfo | None) -> LeaseInfo | None:
    return next((lease for lease in info.leases if not lease.parent), None) if info else None


def _free_for_it(size: int) -> str:
    return f"{size} devices are free for it{_TURN}"


def _needs(size: int, of: str, free: int, largest: int) -> str:
    what = f"it waits for {size} devices of {of} that lie together"
    return f"{what}; {free} are free, at most {largest} of them together"


def _list(jobs: Sequence[int]) -> str:
    return ", ".join(map(str, jobs))


def _smaller(largest: int) -> str:
    return f"--ipus={largest} would start now" if largest else ""


def _largest(free: set[int], size: int) -> int:
    """The largest aligned block of free devices."""
    block = size
    while block:
        if any(free.issuperset(range(at, at + block)) for at in range(0, size, block)):
            return block
        block //= 2
    return 0


def _ranges(devices: list[int]) -> str:
    return f"{devices[0]}-{devices[-1]}" if len(devices) > 1 else str(devices[0])
