"""Which nodes a job gets, tried as often as Slurm does: without the poorest when all do not do."""

from __future__ import annotations

import copy

from podwright.slurm.gpus.requests._node_capacity import NodeRoom, has_gpus, room
from podwright.slurm.gpus.requests._node_choices import least_loaded, spread_in_order, spread_out
from podwright.slurm.gpus.requests._search import Search, least_cpus
from podwright.slurm.gpus.requests._side import side_by_side
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts
from podwright.slurm.gpus.requests._tree import by_switches
from podwright.slurm.gpus.requests._values import SlurmCluster


def choose(
    job: JobCounts, site: SlurmCluster, some: list[int], *, trial: bool
) -> list[NodeRoom] | None:
    """The chosen of some nodes (by number), in order; None where idle ones cannot hold the job.

    trial: only whether the job could ever run, as Slurm asks when it cannot start.
    """
    job.least_gpu_cpus, job.job_gpu_cpus = least_cpus(job, job.low_said)
    if not trial:
        some = [n for n in some if has_gpus(job, site.shapes[site.nodes[n][1]])]
        named = {site.nodes[n][0] for n in some}
        if not job.required <= named or not _memory_first(job, site, some):
            return None
    if len(some) < job.min_nodes:
        return None
    lone = job.max_nodes == 1 and site.topology in ("flat", "tree") and not _least_loaded(job)
    if lone and job.release.tries_single_nodes_first:
        return _one_node(job, site, some, trial=trial)
    rooms: dict[int, NodeRoom] = {}
    for n in some:
        name, kind = site.nodes[n]
        found = room(job, n, name, site.shapes[kind], trial=trial)
        if found is not None:
            rooms[n] = found
    if len(rooms) < job.min_nodes or not job.required <= {r.name for r in rooms.values()}:
        return None
    low, high = job.min_nodes, job.max_nodes
    if job.tasks_per_node and job.tasks:
        low = max(low, -(-job.tasks // job.tasks_per_node))
    spans = job.tasks_per_node and job.release.tasks_per_node_spans_nodes
    if job.tasks and high > job.tasks and not spans:
        high = max(job.tasks, low)
    by_one = job.release.drops_poorest_node
    chosen = (_without_poorest if by_one else _without_poor)(job, site, rooms, low, high)
    if chosen is None:
        return None
    if len(chosen) > job.max_nodes and not trial and job.release.checks_chosen_nodes:
        return None
    if job.asks:
        for n in chosen:
            one = rooms[n]
            one.cpus = min(one.cpus, sum(one.cores) * one.threads)
    return [rooms[n] for n in chosen]


def _memory_first(job: JobCounts, site: SlurmCluster, some: list[int]) -> bool:
    """Leaves out nodes with too little memory for any task; False where a named one is."""
    if not job.counts_memory:
        return True
    by_gpus = max((a.verified_memory for a in job.asks), default=0)
    each, per_cpu = job.memory
    if by_gpus and not job.memory_said:
        job.memory, least = (0, False), by_gpus
    elif per_cpu:
        least = each * max(job.tasks_per_node, job.least, job.cpus)
    else:
        least = each
    short = [n for n in some if site.shapes[site.nodes[n][1]].memory < least]
    some[:] = [n for n in some if n not in short]
    return not any(site.nodes[n][0] in job.required for n in short)


def chosen_by_switches(job: JobCounts, site: SlurmCluster) -> bool:
    """Whether --switches counts: not where nodes are chosen in another way."""
    tree = site.topology == "tree" and bool(site.leaves)
    return tree and not (job.contiguous or job.spread or _least_loaded(job))


def _least_loaded(job: JobCounts) -> bool:
    return job.partition.least_loaded or "CR_LLN" in job.select


def _try(search: Search, site: SlurmCluster) -> list[int] | None:
    job = search.job
    if len(search.left) < search.low:
        search.again = "no"
        return None
    if job.spread:
        return (spread_out if job.release.spreads_tasks_in_turn else spread_in_order)(
            search, len(site.nodes)
        )
    if _least_loaded(job):
        return least_loaded(search, len(site.nodes))
    if chosen_by_switches(job, site):
        return by_switches(search, site)
    return side_by_side(search, len(site.nodes))


def _without_poor(
    job: JobCounts, site: SlurmCluster, rooms: dict[int, NodeRoom], low: int, high: int
) -> list[int] | None:
    """Again and again without all nodes of the least worth."""
    whole = {n: list(r.cores) for n, r in rooms.items()}
    left = list(rooms)
    chosen = _try(Search(job, rooms, low, high, job.want_nodes, True, left), site)
    if chosen is not None:
        return chosen

    limit = job.max_nodes if job.release.retries_with_all_nodes else high

    def again() -> list[int] | None:
        for n, r in rooms.items():
            r.cores = list(whole[n])
        return _try(Search(job, rooms, low, limit, job.want_nodes, False, list(left)), site)

    if len(left) <= low:
        return again()
    most = max(r.worth for r in rooms.values())
    count = 0
    while count < most - 1:
        count += 1
        changed = False
        for n in list(left):
            if 0 < rooms[n].worth <= count and rooms[n].name not in job.required:
                left.remove(n)
                changed = True
                if len(left) <= low:
                    break
        if changed and job.release.retries_each_worth:
            count -= 1
        if not changed and count != 1:
            continue
        chosen = again()
        if chosen is not None or len(left) <= low:
            return chosen
    return None


def _without_poorest(
    job: JobCounts, site: SlurmCluster, rooms: dict[int, NodeRoom], low: int, high: int
) -> list[int] | None:
    """Again and again without the one node of the least worth, or those that the search names."""
    whole = {n: list(r.cores) for n, r in rooms.items()}
    left = list(rooms)
    chosen = _try(Search(job, rooms, low, high, job.want_nodes, True, list(left)), site)
    order: list[int] | None = None
    while chosen is None:
        for n, r in rooms.items():
            r.cores = list(whole[n])
        search = Search(job, rooms, low, job.max_nodes, job.want_nodes, False, list(left))
        chosen = _try(search, site)
        if chosen is not None or search.again == "no" or len(left) <= low:
            break
        if search.again == "without":
            left = [n for n in left if n not in search.hint]
            continue
        if order is None:
            order = sorted(
                (n for n in left if rooms[n].name not in job.required),
                key=lambda n: rooms[n].worth,
            )
        order = [n for n in order if n in left]
        gone = [n for n in order if search.again != "only" or not search.hint or n in search.hint]
        if not gone:
            break
        left.remove(gone[0])
        if len(order) <= 1:
            break
    return chosen


def _one_node(
    job: JobCounts, site: SlurmCluster, some: list[int], *, trial: bool
) -> list[NodeRoom] | None:
    """A job of one node takes the first that does, the lightest first; of those that were looked
    at before, the ones with most GPUs beside cores (sched_weight, which only a new try resets)."""
    order = sorted(
        (n for n in some if not job.required or site.nodes[n][0] in job.required),
        key=lambda n: job.looked.get(n, (site.shapes[site.nodes[n][1]].weight, 0xFF)),
    )
    fresh: dict[int, NodeRoom] = {}
    for first in (True, False):
        found_gpus = [0] * len(job.asks)
        for n in order:
            if first:
                name, kind = site.nodes[n]
                found = room(job, n, name, site.shapes[kind], trial=trial)
                if found is None:
                    continue
                fresh[n] = found
                job.looked[n] = found.weight
            if n not in fresh:
                continue
            before = found_gpus
            search = Search(job, {n: copy.deepcopy(fresh[n])}, 1, 1, 1, first, [n])
            job.found = list(before)
            cpus = search.look(n)
            used = search.cut(n, cpus) if cpus else None
            if used and job.min_cpus <= used and job.satisfied():
                search.settle([n])
                return [search.rooms[n]]
            found_gpus = job.found
    return None
