"""The cores of an idle node that a job may have, by what it says of sockets, cores and threads."""

from __future__ import annotations

from typing import NamedTuple

from podwright.slurm.gpus.requests._slurmctld_job import JobCounts
from podwright.slurm.gpus.requests._values import UNLIMITED, NodeHardware


class FreeCpus(NamedTuple):
    """CPUs that can be given, CPUs that are free, and the fewest that are given at once."""

    cpus: int
    most: int
    unit: int


def allocate(
    job: JobCounts, shape: NodeHardware, cores: list[int], needed: set[int]
) -> FreeCpus | None:
    """Counts CPUs, and leaves in `cores` those that count, socket by socket. None: not one.

    needed: sockets whose cores come first, for they have the GPUs.
    """
    threads, part = shape.cpus_per_core, job.partition
    if _too_fine(job, shape):
        return None
    usable = min([threads, *_few(job, threads)])
    unit = min(threads if job.by_core else 1, usable)
    free = list(cores)
    if job.release.limits_cpus_per_socket and part.max_cpus_per_socket < UNLIMITED:
        free = [min(n, part.max_cpus_per_socket // threads) for n in free]
    most = sum(free) * threads
    limit = _partition_limit(job, most)
    if limit == 0:
        return None
    free = [n if n >= (job.cores or 1) else 0 for n in free]
    if sum(n > 0 for n in free) < (job.sockets or 1) or not sum(free):
        return None
    used = job.cpus_per_core(threads)
    if sum(free) * used < job.least:
        return None
    cpus = _cpus(job, free, used, needed)
    if cpus is None:
        return None
    given = _take(job, cores, free, used, cpus, needed)
    return FreeCpus(min(given, limit), most, unit) if given else None


def _few(job: JobCounts, threads: int) -> list[int]:
    found = []
    if job.tasks_per_core:
        found.append(min(threads, job.tasks_per_core * job.cpus))
    if job.threads:
        found.append(job.threads)
    return found


def _too_fine(job: JobCounts, shape: NodeHardware) -> bool:
    """Whether more threads of a core, or tasks of a socket, are asked for than there are."""
    threads = shape.cpus_per_core
    few = _few(job, threads)
    return bool(few and min(few) > threads) or (
        job.tasks_per_socket > threads * shape.cores_per_socket
    )


def _partition_limit(job: JobCounts, most: int) -> int:
    """MaxCPUsPerNode, 0 where it leaves the node out."""
    limit = job.partition.max_cpus_per_node
    if most <= limit:
        return UNLIMITED
    if job.whole or (job.whole_user and not job.release.exclusive_user_shares):
        return 0
    more = (job.tasks_per_core, job.tasks_per_socket, job.threads, job.cpus)
    return 0 if limit == 1 and any(n > 1 for n in more) else limit


def _cpus(job: JobCounts, free: list[int], used: int, needed: set[int]) -> int | None:
    """CPUs of the node as tasks can use them; None where they are too few."""
    if any(not free[s] for s in needed):
        return None
    by_socket = [n * used for n in free]
    cpus = sum(by_socket)
    limit = job.tasks_per_socket
    tasks = sum(min(n, limit) if limit else n for n in by_socket)
    if job.tasks_per_node and job.may_share and not any(a.cpus_per_gpu for a in job.asks):
        tasks = min(tasks, job.tasks_per_node)
    if job.release.sizes_cpus_by_tasks and not job.asks:
        if job.cpus < 2:
            cpus = tasks
        elif job.tasks_per_core == 1 and job.cpus > used:
            whole = -(-job.cpus // used) * used
            cpus = cpus // whole * job.cpus
        else:
            tasks = min(tasks, cpus // job.cpus)
            cpus = tasks * job.cpus
    if job.least > job.own_least:
        cpus = max(job.least, cpus)
    few = job.tasks_per_node and tasks < job.tasks_per_node and not job.overcommit
    if few or cpus < job.least or not tasks:
        return None
    return cpus


def _take(
    job: JobCounts, cores: list[int], free: list[int], used: int, cpus: int, needed: set[int]
) -> int:
    """Core by core, the needed sockets first; the CPUs of those taken."""
    per_socket = job.tasks_per_socket * (job.cpus if job.cpus > 1 else 1)
    limit = per_socket or max(len(free), 1) * UNLIMITED
    on_socket, taken = [0] * len(free), [0] * len(free)
    rest, given = job.cpus, 0
    half = (
        cpus // len(needed) if needed and sum(free[s] for s in needed) * used > cpus else UNLIMITED
    )
    shut = [False] * len(free)
    tpc = job.one_task_per_core and job.least_gpu_cpus > 0

    def one(s: int) -> bool:
        nonlocal cpus, rest, given
        if on_socket[s] and on_socket[s] >= limit:
            shut[s] = True
            return False
        on_socket[s] += used
        taken[s] += 1
        if cpus < used:
            given, cpus = given + cpus, 0
            return True
        part = used
        if not tpc and job.tasks_per_core == 1 and job.cpus > used:
            part = min(rest, used)
        cpus -= part
        given += part
        rest = job.cpus if rest <= part else rest - part
        return True

    for s in sorted(needed):
        if not cpus:
            break
        while taken[s] < free[s] and one(s):
            if on_socket[s] > half:
                break
    for s in range(len(free)):
        while cpus > 0 and taken[s] < free[s] and one(s):
            pass
    cores[:] = taken
    return given
