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
from podwright.guests.slurm.service._missed_hook_sweep import other_wait_text
from podwright.guests.slurm.waiting._block_free_time import soonest
from podwright.guests.slurm.waiting._read_slurm_job import find
from podwright.guests.slurm.waiting._service_presence import absence_text
from podwright.slurm.reader import SHOW_CONFIG, JobRecord, SlurmConfig, known, release_note
from podwright.slurm.site.commands import Slurm
from podwright.wire import Explanation, LeaseInfo, PartitionInfo, PartitionSpec

#: Slurm's reasons in words for a waiting user. Other reasons are shown as they are.
_TEXT_BY_SLURM_REASON: Final = {
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
_IGNORED_COMMENT_STARTS: Final = ("podwright:", "waits for", "its partitions are free")
#: What the service alone knows of a waiting job: its room, and which jobs are preempted for it.
_SAID_BY_SERVICE_ALONE: Final = ("emptied for", "of lower rank")
_JOB_SUBMIT_NOTE: Final = re.compile(r"(?:ipus=\d+|vipu=)[^;]*(?:; |$)")
#: A placeholder after free devices. `explain_job` puts what the job waits for in its place.
_WAIT_TEXT_PLACEHOLDER: Final = ": what it waits for"
_PLACEHOLDER_REASONS: Final = ("Licenses", "Reservation", "Resources", "Priority", "None")
#: What Slurm prints for a field without a value.
_NOTHING: Final = ("", "(null)", "N/A", "None")
#: A job whose devices are free and that Slurm does not start may wait for a service that is away.
_SERVICE_REASONS: Final = ("Licenses", "Reservation")
_SERVICE_HINT: Final = (
    "if that lasts, see that `podwright slurm serve` runs: it tells Slurm which devices are free"
)
_UNKNOWN_SITE_PODS: Final = (SlurmPod(type="pod", cluster="", devices=0, largest=0, domain=0),)


async def explain_job(slurm: Slurm, client: Client, job_id: str, site: Site | None) -> Explanation:
    """Return why a job waits, what would start now, or what it holds.

    A last line says if this Slurm is newer than the newest release that was tested. Raises
    PodwrightError.
    """
    explanation = await _explain_found_job(slurm, client, job_id, site)
    reply = await slurm.run(*SHOW_CONFIG)
    version_note = release_note(known(lambda: SlurmConfig(reply.out).version, None))
    return (
        msgspec.structs.replace(explanation, lines=[*explanation.lines, version_note])
        if version_note
        else explanation
    )


async def _explain_found_job(
    slurm: Slurm, client: Client, job_id: str, site: Site | None
) -> Explanation:
    job = await find(slurm, job_id)
    job_text = f"job {job_id} of {_shown_text(lambda: job.user.name)}"
    if job.state != "PENDING":
        return _explain_started_job(job, client, job_text)
    jobs = await listed(slurm)
    listed_job = jobs.get(job.number)
    reason = _shown_text(lambda: job.reason)
    reason_text = _TEXT_BY_SLURM_REASON.get(reason, f"Slurm says {reason}")
    if reason == "Resources" and listed_job and listed_job.het:
        reason_text = "it waits for nodes or for devices"  # Slurm does not distinguish them
    problem = f"{job.state}, {reason_text} ({reason})"
    lines = _job_time_lines(job)
    # What the sweep last wrote there is computed again below.
    comment = _JOB_SUBMIT_NOTE.sub("", listed_job.comment if listed_job else "")
    if comment not in _NOTHING and (
        any(words in comment for words in _SAID_BY_SERVICE_ALONE)
        or not comment.startswith(_IGNORED_COMMENT_STARTS)
    ):
        lines.append(comment)
    explanation = _explain_by_site_mode(listed_job, site, client, jobs)
    wait_text = f": {other_wait_text(reason)}" if reason in _PLACEHOLDER_REASONS else ""
    lines += [line.replace(_WAIT_TEXT_PLACEHOLDER, wait_text) for line in explanation.lines]
    if site is not None and (absence := await absence_text(slurm, site, explanation.starts_now)):
        lines.append(absence)
    elif explanation.starts_now and reason in _SERVICE_REASONS:
        lines.append(_SERVICE_HINT)
    return msgspec.structs.replace(explanation, asked=job_text, problem=problem, lines=lines)


def _shown_text(read_field: Callable[[], str]) -> str:
    """Return what `read_field` returns, or words that Slurm does not show it."""
    try:
        return read_field()
    except FieldNotKnown as error:
        return f"not known: {error.field}"


def _explain_by_site_mode(
    listed_job: Listed | None, site: Site | None, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """Return what the server knows about it, according to the site's mode."""
    licences = parse_licences(listed_job.licences if listed_job else "")
    if site is not None and site.mode == "static":
        return _explain_static(licences, site, client, jobs)
    if site is not None and site.mode == "host-mapping":
        return _explain_host_mapping_wait(site, client, jobs)
    pods = site.pods if site else _UNKNOWN_SITE_PODS
    request = listed_job.request(pods) if listed_job else None
    pod_and_size = request[:2] if request else of_job(licences, pods)
    if pod_and_size is None:
        return Explanation()
    if site is not None and site.shared:
        return _explain_shared_part_wait(pod_and_size[1], site.shared, client, jobs)
    return _explain_block_wait(*pod_and_size, client, jobs)


def _explain_started_job(job: JobRecord, client: Client, job_text: str) -> Explanation:
    """Explain a job that is not in the queue: what it holds, and until when."""
    partitions = [info for info in client.list_partitions() if info.name == f"slurm_{job.number}"]
    comment = _shown_text(lambda: job.admin_comment)
    starting = job.state == "CONFIGURING" and comment not in _NOTHING
    lines = [_JOB_SUBMIT_NOTE.sub("", comment)] if starting else []
    lines += [
        f"partition {info.name} holds {info.size} devices, {info.ready_state.value}"
        for info in partitions
    ]
    for lease in client.list_leases():
        if _job_of_holder(lease.holder) == job.number and not lease.parent:
            devices_text = (
                f" (devices {_device_range_text(lease.devices)} of it)" if lease.devices else ""
            )
            lines.append(f"it holds partition {lease.partition}{devices_text}")
        if lease.move and lease.partition in {info.name for info in partitions}:
            time_text = f"within {lease.move_within:.0f} s"
            lines.append(f"it is asked to move to other devices {time_text}, and goes on there")
    for info in client.list_allocations():
        if info.name == f"c{job.number}":
            lines.append(f"allocation {info.name} has {', '.join(info.agents)}")
    if end_time := _shown_text(lambda: job.end):
        unfinished = job.state in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED")
        lines.append(f"its time is over at {end_time}" if unfinished else f"it ended at {end_time}")
    return Explanation(asked=job_text, problem=job.state, lines=lines, starts_now=True)


def _explain_block_wait(
    pod: SlurmPod, size: int, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """Explain a job that waits in native mode, for a block of a pod."""
    job_spec = PartitionSpec(name="job", size=size, cluster=pod.cluster, allocation=pod.allocation)
    explanation = client.explain(spec=job_spec, for_job=True)
    if explanation.starts_now:
        return Explanation(lines=[_free_devices_text(size)], free=explanation.free, starts_now=True)
    lines = [_adjacent_wait_text(size, pod.type, explanation.free, explanation.largest)]
    for holder in explanation.partitions:
        holder_text = _holder_text(holder.partition, holder.owner, jobs)
        until_text = _job_end_text(jobs.get(_job_of_partition(holder.partition)))
        lines.append(f"{holder_text} has {holder.size}{until_text}")
    lines += [f"machine {machine} does not answer" for machine in explanation.down]
    for machine in explanation.drained:
        reason = explanation.drain_reasons.get(machine)
        lines.append(f"machine {machine} is drained{f': {reason}' if reason else ''}")
    devices = client.list_devices(cluster=pod.cluster, allocation=pod.allocation)
    free_time, occupying_jobs = soonest(devices, size, jobs)
    holder_text = (
        f"job {occupying_jobs[0]} ends"
        if len(occupying_jobs) == 1
        else f"jobs {_job_ids_text(occupying_jobs)} end"
    )
    if free_time is None:
        lines.append(f"no block of {size} comes free by itself: machines are away, or others' stay")
    elif free_time[:1].isdigit():
        lines.append(f"{size} are free together at {free_time} at the latest, when {holder_text}")
    elif free_time:
        lines.append(f"{size} are free together when {holder_text}: no time limit says when")
    return Explanation(
        lines=lines,
        free=explanation.free,
        largest=explanation.largest,
        fragmented=explanation.fragmented,
        partitions=explanation.partitions,
        down=explanation.down,
        drained=explanation.drained,
        would_work=_smaller_size_hint(explanation.largest),
    )


def _explain_shared_part_wait(
    size: int, partition_name: str, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    partition_info = client.get_partition(partition_name)
    lines = []
    all_devices = list(range(partition_info.size))
    free_devices = set(all_devices) if partition_info.ready_state.value == "ACTIVE" else set()
    if not free_devices:
        lines.append(f"partition {partition_info.name} is {partition_info.ready_state.value}")
    for lease in partition_info.leases:
        if lease.parent:
            continue
        leased_devices = lease.devices or all_devices
        free_devices -= set(leased_devices)
        until_text = _job_end_text(jobs.get(_job_of_holder(lease.holder)))
        lines.append(
            f"{in_short(lease.holder) or lease.owner} of {lease.owner} has "
            f"{len(leased_devices)}{until_text}"
        )
    largest_block = _largest_free_block(free_devices, partition_info.size)
    fits = largest_block >= size
    return Explanation(
        lines=[
            _free_devices_text(size)
            if fits
            else _adjacent_wait_text(size, partition_name, len(free_devices), largest_block),
            *lines,
        ],
        starts_now=fits,
        free=len(free_devices),
        largest=largest_block,
        would_work="" if fits else _smaller_size_hint(largest_block),
    )


def _explain_static(
    licences: Mapping[str, int], site: Site, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """Explain a job that waits for static partitions: who has those of its sizes, and which other
    sizes are free.
    """
    partitions_by_name = {
        static_partition.name: static_partition for static_partition in client.list_partitions()
    }
    free_counts: dict[int, int] = {}
    lines = []
    for static_partition in site.partitions:
        partition = partitions_by_name.get(static_partition.name)
        lease = _lease_in_use(partition)
        usable = partition is not None and partition.ready_state.value == "ACTIVE" and lease is None
        free_counts[static_partition.size] = free_counts.get(static_partition.size, 0) + usable
        if not licences.get(static_partition.licence) or usable:
            continue
        if lease is not None:
            until_text = _job_end_text(jobs.get(_job_of_holder(lease.holder)))
            holder_text = f"{in_short(lease.holder) or lease.owner} of {lease.owner}"
            lines.append(f"{static_partition.name}: {holder_text} has it{until_text}")
        else:
            state_text = partition.ready_state.value if partition else "not there"
            lines.append(f"{static_partition.name}: it is {state_text}")
    needed_counts = {
        static_partition.size: licences.get(static_partition.licence, 0)
        for static_partition in site.partitions
    }
    for size, partition_count in sorted(needed_counts.items()):
        if partition_count:
            needs_text = f"it needs {partition_count} of the partitions of {size} devices"
            lines.append(f"{needs_text}, of which {free_counts[size]} are free")
    too_few_free = any(free_counts[size] < count for size, count in needed_counts.items())
    alternatives = [f"--gres=vipu:{size}" for size, count in sorted(free_counts.items()) if count]
    return Explanation(
        lines=lines,
        would_work=f"{' or '.join(alternatives)} would start now"
        if too_few_free and alternatives
        else "",
    )


def _explain_host_mapping_wait(
    site: Site, client: Client, jobs: Mapping[int, Listed]
) -> Explanation:
    """Explain a job under host mapping: Slurm chooses its hosts, and it can start where their
    machines are free.
    """
    allocation_by_machine = {
        machine: allocation.name
        for allocation in client.list_allocations()
        for machine in allocation.agents
    }
    free_hosts, lines = [], []
    for host in site.hosts:
        allocation_names = {
            allocation_by_machine[machine]
            for machine in host.machines
            if machine in allocation_by_machine
        } - {host.cluster}
        for name in sorted(allocation_names):
            job_id = int(name[1:]) if name[1:].isdecimal() else 0
            holder_text = f"job {job_id}" if job_id in jobs else f"allocation {name}"
            lines.append(
                f"{host.name}: {holder_text} has its machines{_job_end_text(jobs.get(job_id))}"
            )
        free_hosts += [] if allocation_names else [host.name]
    lines.append(f"hosts whose machines are free: {', '.join(free_hosts) or 'none'}")
    return Explanation(lines=lines)


# -- words -----------------------------------------------------------------------------------


def _job_time_lines(job: JobRecord) -> list[str]:
    lines = []
    dependency = _shown_text(lambda: job.dependency)
    if dependency not in _NOTHING:
        lines.append(f"it depends on {dependency}")
    if start_time := _shown_text(lambda: job.start):
        lines.append(f"Slurm expects to start it at {start_time}")
    return lines


def _job_end_text(job: Listed | None) -> str:
    """Return when a job's time is over, in words, or "" where Slurm does not limit it."""
    return f", until {job.end} at most" if job and job.end[:1].isdecimal() else ""


def _job_of_holder(holder_name: str) -> int:
    text = in_short(holder_name).removeprefix("Slurm job ").partition(" ")[0].partition("/")[0]
    return int(text) if holder_name.startswith("Slurm job ") and text.isdecimal() else 0


def _job_of_partition(partition_name: str) -> int:
    text = partition_name.removeprefix("slurm_")
    return int(text) if partition_name.startswith("slurm_") and text.isdecimal() else 0


def _holder_text(partition_name: str, owner: str, jobs: Mapping[int, Listed]) -> str:
    job_id = _job_of_partition(partition_name)
    return (
        f"job {job_id} of {owner}" if job_id in jobs else f"partition {partition_name} of {owner}"
    )


def _lease_in_use(partition: PartitionInfo | None) -> LeaseInfo | None:
    return (
        next((lease for lease in partition.leases if not lease.parent), None) if partition else None
    )


def _free_devices_text(size: int) -> str:
    return f"{size} devices are free for it{_WAIT_TEXT_PLACEHOLDER}"


def _adjacent_wait_text(
    size: int, pod_or_partition: str, free_count: int, largest_block: int
) -> str:
    wait_text = f"it waits for {size} devices of {pod_or_partition} that lie together"
    return f"{wait_text}; {free_count} are free, at most {largest_block} of them together"


def _job_ids_text(job_ids: Sequence[int]) -> str:
    return ", ".join(map(str, job_ids))


def _smaller_size_hint(largest_block: int) -> str:
    return f"--ipus={largest_block} would start now" if largest_block else ""


def _largest_free_block(free_devices: set[int], partition_size: int) -> int:
    """Return the size of the largest aligned block of free devices, or 0."""
    block_size = partition_size
    while block_size:
        if any(
            free_devices.issuperset(range(block_start, block_start + block_size))
            for block_start in range(0, partition_size, block_size)
        ):
            return block_size
        block_size //= 2
    return 0


def _device_range_text(device_ids: list[int]) -> str:
    return f"{device_ids[0]}-{device_ids[-1]}" if len(device_ids) > 1 else str(device_ids[0])
