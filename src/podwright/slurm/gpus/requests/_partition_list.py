"""Several partitions of one job: slurmctld tests one after the other when it is submitted.

After its _select_nodes_parts: the first that takes the job ends the test, unless
EnforcePartLimits=ALL. A job that is kept starts later, in the first that can hold it.
"""

from __future__ import annotations

from dataclasses import replace

from podwright.slurm.gpus.requests._allot import Allotted, allot, reaches_nodes
from podwright.slurm.gpus.requests._counts import Wants
from podwright.slurm.gpus.requests._request_details import RequestDetails
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition, SlurmRefusal
from podwright.slurm.site.releases import Release


def tried_in_turn(
    wants: Wants,
    said: RequestDetails,
    site: SlurmCluster,
    partitions: list[SlurmPartition],
    release: Release,
) -> Allotted | SlurmRefusal:
    """What the partitions say together; they stand in the order in which they are tried."""
    taken, last, why, tested = "", "limit", "", list[SlurmPartition]()
    shut = False  # the last one that was tested is down
    for partition in partitions:
        tried = allot(wants, said, site.of(partition), partition, release)
        if isinstance(tried, SlurmRefusal):
            return tried
        shut, why = not partition.up, why or tried.reason
        limited = tried.verdict in ("limit", "skips")
        if limited and site.enforce == "ALL":
            return SlurmRefusal("submit", tried.reason)
        if (shut or limited) and site.enforce == "ANY":
            continue
        said = _whole(said, partition, release)
        if tried.verdict == "skips" and site.enforce == "NO":
            continue
        if reaches_nodes(wants, said, site.of(partition), partition, release):
            tested.append(partition)
        last = "takes" if said.held or (shut and site.enforce == "ALL") else tried.verdict
        taken = taken or (last if last == "takes" else "")
        if taken and site.enforce != "ALL":
            break
    outcome = taken or ("takes" if shut else last)
    if outcome == "never" or (outcome == "limit" and site.enforce != "NO"):
        return SlurmRefusal("submit", why)
    if said.held:
        return SlurmRefusal("waits", "it is held", until="until `scontrol release JOB`")
    later = _later(wants, said, site, partitions, tested, release)
    return later or SlurmRefusal("waits", why)


def _whole(said: RequestDetails, partition: SlurmPartition, release: Release) -> RequestDetails:
    """An exclusive partition makes it a job of whole nodes, in some releases for all that follow
    as well (details->whole_node, which nothing takes back)."""
    sticks = partition.share == 0 and not release.judges_partitions_apart
    return replace(said, share="none") if sticks else said


def _later(
    wants: Wants,
    said: RequestDetails,
    site: SlurmCluster,
    partitions: list[SlurmPartition],
    tested: list[SlurmPartition],
    release: Release,
) -> Allotted | SlurmRefusal | None:
    """The start of a job that was kept, in the first partition that it may start in.

    --prefer puts a job into the queue twice, with its features alone and without, the former first
    where partitions have one priority (job_queue_append_internal, sort_job_queue2).
    """
    plain = replace(said, prefer="")
    queue = [(partition, plain) for partition in partitions]
    if said.prefer:
        fond = replace(plain, constraint=said.prefer)
        queue = [(partition, fond) for partition in partitions] + queue
    whole = said.share
    for partition, job in sorted(queue, key=lambda one: -one[0].priority):
        job = replace(job, share=whole)
        here = site.of(partition)
        tried = allot(_with_left(wants, site, tested), job, here, partition, release)
        if isinstance(tried, SlurmRefusal):
            return tried
        if tried.start is not None:
            return tried.start
        if tried.verdict == "takes" and reaches_nodes(wants, job, here, partition, release):
            tested = [*tested, partition]
        if tried.verdict not in ("limit", "skips"):  # job_limits_check comes first
            whole = _whole(job, partition, release).share
    return None


def _with_left(wants: Wants, site: SlurmCluster, tested: list[SlurmPartition]) -> Wants:
    """The job with what the defaults of partitions that were tested before left in it."""
    asks = [ask.copy() for ask in wants.asks]
    for ask in asks if tested else ():
        if ask.name == "gpu":
            first, last = tested[0], tested[-1]
            ask.first_default_cpus = 0 if wants.cpus_said else site.cpus_of_gpu(first)
            ask.last_default_memory = site.memory_of_gpu(last)
    return replace(wants, asks=asks)
