"""Finds what keeps a job waiting: Slurm says what it waits for, and the server says who has that.

Nothing here needs a right that an ordinary user lacks: it uses Slurm's own commands, the server's
lists, and the site's file, which anybody may read. Without that file it treats all that the server
has as one pod.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from podwright.client import Client
from podwright.errors import FieldNotKnown
from podwright.guests.slurm.service import (
    Listed,
    Site,
    SlurmPod,
    in_short,
    listed,
    of_job,
    parse_licences,
)
from podwright.guests.slurm.service._queue_sweep import other_wait_text
from podwright.guests.slurm.waiting._free_time import soonest
from podwright.guests.slurm.waiting._show_job import find
from podwright.slurm.reader import SHOW_CONFIG, JobRecord, SlurmConfig, known, release_note
from podwright.slurm.site.commands import Slurm
from podwright.wire import Explanation, LeaseInfo, PartitionInfo, PartitionSpec

#: Slurm's reasons in words for a waiting user. Other reasons are shown as they are.
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
#: The beginnings of comments that add nothing to this answer; and the note that job_submit writes
#: before them.
_SAID: Final = ("podwright:", "waits for", "its partitions are free")
_HEAD: Final = re.compile(r"(?:ipus=\d+|vipu=)[^;]*(?:; |$)")
#: A placeholder after free devices. `explain_job` puts what the job waits for in its place.
_TURN: Final = ": what it waits for"
_TURNS: Final = ("Licenses", "Reservation", "Resources", "Priority", "None")
_PLAIN: Final = (SlurmPod(type="pod", cluster="", devices=0, largest=0, domain=0),)


async def explain_job(slurm: Slurm, client: Client, name: str, site: Site | None) -> Explanation:
    """Return why a job waits, what would start now, or what it holds.

    A last line says if this Slurm is newer than the newest release that was tested. Raises
    PodwrightError.
    """
    explanation = await _explained(slurm, client, name, site)
    config = await slurm.run(*SHOW_CONFIG)
    note = release_note(known(lambda: SlurmConfig(config.out).version, None))
    return (
        msgspec.structs.replace(explanation, lines=[*explanation.lines, note])
        if note
        else explanation
    )


async def _explained(slurm: Slurm, client: Client, name: str, site: Site | None) -> Explanation:
    job = await find(slurm, name)
    action = f"job {name} of {_if_shown(lambda: job.user.name)}"
    if job.state != "PENDING":
        return _started(job, client, action)
    jobs = await listed(slurm)
    row = jobs.get(job.number)
    reason = _if_shown(lambda: job.reason)
    words = _REASONS.get(reason, f"Slurm says {reason}")
    if reason == "Resources" and row and row.het:
        words = "it waits for nodes or for devices"  # Slurm does not distinguish them
    problem = f"{job.state}, {words} ({reason})"
    lines = _times(job)
    # What the sweep last wrote there is computed again below.
    comment = _HEAD.sub("", row.comment if row else "")
    if comment and ("emptied for" in comment or not comment.startswith(_SAID)):
        lines.append(comment)
    explanation = _in_the_way(row, site, client, jobs)
    but = f": {other_wait_text(reason)}" if reason in _TURNS else ""
    lines += [line.replace(_TURN, but) for line in explanation.lines]
    return msgspec.structs.replace(explanation, asked=action, problem=problem, lines=lines)


def _if_shown(read: Callable[[], str]) -> str:
    """Return what `read` returns, or words that Slurm does not show it."""
    try:
        return read()
    except FieldNotKnown as error:
        return f"not known: {error.field}"


def _in_the_way(
    row: Listed | None, site: Site | None, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """Return what the server knows about it, according to the site's mode."""
    licences = parse_licences(row.licences if row else "")
    if site is not None and site.mode == "static":
        return _shelf(licences, site, client, jobs)
    if site is not None and site.mode == "host-mapping":
        return _machines(site, client, jobs)
    pods = site.pods if site else _PLAIN
    request = row.request(pods) if row else None
    need = request[:2] if request else of_job(licences, pods)
    if need is None:
        return Explanation()
    if site is not None and site.shared:
        return _part(need[1], site.shared, client, jobs)
    return _block(*need, client, jobs)


def _started(job: JobRecord, client: Client, action: str) -> Explanation:
    """Explain a job that is not in the queue: what it holds, and until when."""
    infos = [info for info in client.list_partitions() if info.name == f"slurm_{job.number}"]
    lines = [
        f"partition {info.name} holds {info.size} devices, {info.ready_state.value}"
        for info in infos
    ]
    for lease in client.list_leases():
        if _job_of(lease.holder) == job.number and not lease.parent:
            part = f" (devices {_ranges(lease.devices)} of it)" if lease.devices else ""
            lines.append(f"it holds partition {lease.partition}{part}")
        if lease.move and lease.partition in {info.name for info in infos}:
            within = f"within {lease.move_within:.0f} s"
            lines.append(f"it is asked to move to other devices {within}, and goes on there")
    for info in client.list_allocations():
        if info.name == f"c{job.number}":
            lines.append(f"allocation {info.name} has {', '.join(info.agents)}")
    if end := _if_shown(lambda: job.end):
        living = job.state in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED")
        lines.append(f"its time is over at {end}" if living else f"it ended at {end}")
    return Explanation(asked=action, problem=job.state, lines=lines, starts_now=True)


def _block(pod: SlurmPod, size: int, client: Client, jobs: Mapping[int, Listed]) -> Explanation:
    """Explain a job that waits in native mode, for a block of a pod."""
    spec = PartitionSpec(name="job", size=size, cluster=pod.cluster, allocation=pod.allocation)
    answer = client.explain(spec=spec, for_job=True)
    if answer.starts_now:
        return Explanation(lines=[_free_for_it(size)], free=answer.free, starts_now=True)
    lines = [_needs(size, pod.type, answer.free, answer.largest)]
    for holder in answer.partitions:
        who = _holder(holder.partition, holder.owner, jobs)
        until = _until(jobs.get(_job_of_partition(holder.partition)))
        lines.append(f"{who} has {holder.size}{until}")
    lines += [f"machine {name} does not answer" for name in answer.down]
    lines += [f"machine {name} is drained" for name in answer.drained]
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
        free=answer.free,
        largest=answer.largest,
        fragmented=answer.fragmented,
        partitions=answer.partitions,
        down=answer.down,
        drained=answer.drained,
        would_work=_smaller(answer.largest),
    )


def _part(size: int, partition: str, client: Client, jobs: Mapping[int, Listed]) -> Explanation:
    """Explain a job that waits for a part of a shared partition."""
    info = client.get_partition(partition)
    lines = []
    all_devices = list(range(info.size))
    free = set(all_devices) if info.ready_state.value == "ACTIVE" else set()
    if not free:
        lines.append(f"partition {info.name} is {info.ready_state.value}")
    for lease in info.leases:
        if lease.parent:
            continue
        leased = lease.devices or all_devices
        free -= set(leased)
        until = _until(jobs.get(_job_of(lease.holder)))
        lines.append(
            f"{in_short(lease.holder) or lease.owner} of {lease.owner} has {len(leased)}{until}"
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
    """Explain a job that waits for static partitions: who has those of its sizes, and which other
    sizes are free.
    """
    infos = {fixed.name: fixed for fixed in client.list_partitions()}
    free: dict[int, int] = {}
    lines = []
    for fixed in site.partitions:
        info = infos.get(fixed.name)
        holder = _in_use(info)
        usable = info is not None and info.ready_state.value == "ACTIVE" and holder is None
        free[fixed.size] = free.get(fixed.size, 0) + usable
        if not licences.get(fixed.licence) or usable:
            continue
        if holder is not None:
            until = _until(jobs.get(_job_of(holder.holder)))
            who = f"{in_short(holder.holder) or holder.owner} of {holder.owner}"
            lines.append(f"{fixed.name}: {who} has it{until}")
        else:
            state = info.ready_state.value if info else "not there"
            lines.append(f"{fixed.name}: it is {state}")
    wanted = {fixed.size: licences.get(fixed.licence, 0) for fixed in site.partitions}
    for size, count in sorted(wanted.items()):
        if count:
            words = f"it needs {count} of the partitions of {size} devices"
            lines.append(f"{words}, of which {free[size]} are free")
    short = any(free[size] < count for size, count in wanted.items())
    alternatives = [f"--gres=vipu:{size}" for size, count in sorted(free.items()) if count]
    return Explanation(
        lines=lines,
        would_work=f"{' or '.join(alternatives)} would start now" if short and alternatives else "",
    )


def _machines(site: Site, client: Client, jobs: Mapping[int, Listed]) -> Explanation:
    """Explain a job under host mapping: Slurm chooses its hosts, and it can start where their
    machines are free.
    """
    busy = {
        m: allocation.name for allocation in client.list_allocations() for m in allocation.agents
    }
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


def _times(job: JobRecord) -> list[str]:
    lines = []
    if waiting := _if_shown(lambda: job.dependency):
        lines.append(f"it depends on {waiting}")
    if start := _if_shown(lambda: job.start):
        lines.append(f"Slurm expects to start it at {start}")
    return lines


def _until(job: Listed | None) -> str:
    """Return when a job's time is over, in words, or "" where Slurm does not limit it."""
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


def _needs(size: int, pod_size: str, free: int, largest: int) -> str:
    words = f"it waits for {size} devices of {pod_size} that lie together"
    return f"{words}; {free} are free, at most {largest} of them together"


def _list(jobs: Sequence[int]) -> str:
    return ", ".join(map(str, jobs))


def _smaller(largest: int) -> str:
    return f"--ipus={largest} would start now" if largest else ""


def _largest(free: set[int], size: int) -> int:
    """Return the size of the largest aligned block of free devices, or 0."""
    block = size
    while block:
        if any(free.issuperset(range(start, start + block)) for start in range(0, size, block)):
            return block
        block //= 2
    return 0


def _ranges(devices: list[int]) -> str:
    return f"{devices[0]}-{devices[-1]}" if len(devices) > 1 else str(devices[0])
