"""Which GPUs of its nodes a job gets, once its cores are known: those beside the cores first.

Older releases take one beside each socket in use and then fill up socket by socket; newer ones
share the GPUs over the sockets as the cores are shared. Shares of GPUs come from one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from podwright.slurm.gpus.requests._links import Taking, best_of
from podwright.slurm.gpus.requests._node_capacity import GpuCandidates
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts
from podwright.slurm.gpus.requests._spread import Laid

_U64 = (1 << 64) - 1
Picked = list[list[dict[int, int]]]  # by node, by ask: units of each GPU


def pick(job: JobCounts, laid: list[Laid]) -> Picked | None:
    """GPUs of each ask on each node; None where Slurm fails to find them."""
    strict = job.release.refuses_short_grants
    if strict and any(not sum(node.cores) for node in laid) and job.asks:
        return None
    tasks = [_NodeTasks([0] * len(node.cores)) for node in laid]
    if any(ask.per_task for ask in job.asks):
        tasks = [_tasks_by_socket(job, node) for node in laid]
        if job.overcommit and not strict:
            _add_tasks(job, laid, tasks)
        missing = job.tasks - sum(some.count for some in tasks)
        if job.overcommit and strict:
            _crowd(tasks, laid, missing)
        elif strict and missing > 0:
            return None
    picked: Picked = [[{} for _ in job.asks] for _ in laid]
    totals = [0] * len(job.asks)
    done: bool | None = None  # of what --gpus counts; None where nothing was so far (job_fini)
    for n, node in enumerate(laid):
        held: set[int] = set()
        for a, one in enumerate(node.room.near):
            ask = one.ask
            if ask.shared:
                got = _shares(job, one, node, tasks[n])
                if got is None:
                    return None
                picked[n][a] = got
                continue
            taking = Taking(
                one, node.room.shape.links, set(), held if one.ask.kind == "" else set()
            )
            if not _give(job, one, node, taking, tasks[n], totals[a], len(laid) - n - 1):
                return None
            picked[n][a] = dict.fromkeys(sorted(taking.taken), 1)
            if ask.per_job and not (ask.per_node or ask.per_socket or ask.per_task):
                totals[a] += len(taking.taken)
                done = _together(job, done, totals[a] >= ask.per_job)
            elif done is None:
                totals[a] += len(taking.taken)
    return picked if done is not False or _rest(job, laid, picked, totals) else None


def _together(job: JobCounts, before: bool | None, now: bool) -> bool:
    """Whether GPUs of several types are all there; before 24.05 the last one alone says it."""
    return now and not (before is False and job.release.remembers_missing_gpus)


def _rest(job: JobCounts, laid: list[Laid], picked: Picked, totals: list[int]) -> bool:
    """GPUs that are still missing, from any socket; False where they stay missing.

    Those counted by task are missing here, too, if GPUs of another type were counted first.
    """
    even = job.release.shares_gpus_over_sockets
    for n, node in enumerate(laid):
        done: bool | None = None
        for a, one in enumerate(node.room.near):
            missing = one.ask.per_job - totals[a]
            if missing > 0:
                taking = Taking(one, node.room.shape.links, set(picked[n][a]), set())
                sockets = list(range(len(one.gpus)))
                places = [*sockets, -1] if even else [-1, *sockets]
                got = taking.fill(places, missing, sort=even)
                totals[a] += got
                missing -= got
                picked[n][a] = dict.fromkeys(sorted(taking.taken), 1)
            done = _together(job, done, missing <= 0)
            if done and not job.release.remembers_missing_gpus:
                return True
        if done:
            return True
    return False


def _used(node: Laid) -> list[int]:
    return [s for s, n in enumerate(node.cores) if n]


def _unused(node: Laid) -> list[int]:
    return [s for s, n in enumerate(node.cores) if not n]


def _give(
    job: JobCounts,
    one: GpuCandidates,
    node: Laid,
    taking: Taking,
    tasks: _NodeTasks,
    total: int,
    left: int,
) -> bool:
    ask, even = one.ask, job.release.shares_gpus_over_sockets
    if ask.per_node:
        missing = (_by_node if even else _by_node_in_turn)(job, one, node, taking)
    elif ask.per_socket:
        missing = (_by_socket if even else _by_socket_in_turn)(job, one, node, taking)
    elif ask.per_task:
        if tasks.count < 0:
            return False  # an unsigned count goes below zero
        missing = (_by_task if even else _by_task_in_turn)(job, one, tasks, taking)
    else:
        _by_job(job, one, node, taking, total, left)
        return True
    return not missing or not job.release.refuses_short_grants


def _by_node_in_turn(job: JobCounts, one: GpuCandidates, node: Laid, taking: Taking) -> int:
    need = one.ask.per_node
    places = [-1, *_used(node)]
    for place in places:
        if need:
            need -= taking.take(place, 1)
    best = taking.scores()
    need -= taking.by_score(places, need, best)
    return need - taking.by_score(_unused(node), need, best)


def _by_node(job: JobCounts, one: GpuCandidates, node: Laid, taking: Taking) -> int:
    need = one.ask.per_node
    each = need / node.sum_cores
    for s in _used(node):
        need -= taking.take(s, min(need, int(node.cores[s] * each)), sort=True)
    rest = [] if job.enforce else _unused(node)
    for place in (-1, *_used(node), *rest):
        need -= taking.take(place, need, sort=True)
    return need


def _sockets(job: JobCounts, one: GpuCandidates, node: Laid) -> list[int]:
    """The sockets that count, where --sockets-per-node says how many."""
    used, asked = _used(node), job.sockets
    if not asked or asked == len(used):
        return used
    if asked > len(used):
        for s in _unused(node):
            if len(used) < asked and len(one.gpus[s]) >= max(one.ask.per_socket, 1):
                used.append(s)
    else:
        used = [s for s in used if one.gpus[s] or not one.has_bits(s)]
    return sorted(used)


def _by_socket_in_turn(job: JobCounts, one: GpuCandidates, node: Laid, taking: Taking) -> int:
    best = taking.all_scores()
    for s in _sockets(job, one, node):
        need = one.ask.per_socket
        need -= taking.level(s, need, best)
        taking.take(-1, need)
    return 0


def _by_socket(job: JobCounts, one: GpuCandidates, node: Laid, taking: Taking) -> int:
    sockets = _sockets(job, one, node)
    need = max(len(_used(node)), len(sockets)) * one.ask.per_socket
    if job.sockets and len(_used(node)) > job.sockets:
        need = len(sockets) * one.ask.per_socket
    for s in sockets:
        need -= taking.take(s, min(need, one.ask.per_socket), sort=True)
    rest = [s for s in range(len(one.gpus)) if s not in sockets]
    for place in (-1, *sockets, *([] if job.enforce else rest)):
        need -= taking.take(place, need, sort=True)
    return need


def _limit(job: JobCounts, node: Laid) -> int:
    """Tasks of a node: one without any counts by its CPUs (_build_tasks_per_node_sock)."""
    if node.tasks or job.whole:
        return job.tasks_per_node or node.tasks
    return node.cpus // job.cpus if node.cpus else 1


@dataclass
class _NodeTasks:
    """Tasks of a node by socket, and by how many these are too many for the node."""

    by_socket: list[int]
    excess: int = 0

    @property
    def count(self) -> int:
        """Tasks that count (_get_task_cnt_node)."""
        return sum(self.by_socket) - self.excess


def _tasks_by_socket(job: JobCounts, node: Laid) -> _NodeTasks:
    """Tasks by the CPUs of a task, or one for each thread (_build_tasks_per_node_sock).

    What --ntasks-per-socket leaves out is still counted against the node's limit, so that newer
    releases, which see to that limit last, leave it out twice.
    """
    threads = node.room.threads
    each, limit = 1, _limit(job, node)
    if not (node.tasks or node.cpus):
        return _NodeTasks([1, *(0 for _ in node.cores[1:])])
    if job.release.counts_tasks_by_cpus:
        each = max(1, node.cpus // node.tasks) if node.tasks else job.cpus
        threads = min(threads, job.threads) if job.threads else threads
    found, whole, uncut = [0] * len(node.cores), job.release.counts_tasks_of_all_cores, 0
    for s, cores in enumerate(node.cores):
        core = here = 0
        while core < cores:
            per_core, skip = job.mc_tasks_per_core(), 0
            if not per_core:
                per_core = threads // each
                if per_core < 1:
                    per_core, skip = 1, each // node.room.threads - 1
            here += per_core
            uncut += per_core
            core += 1 + max(skip, 0)
            if not whole and limit and uncut >= limit:
                found[s] = here - (uncut - limit)
                return _NodeTasks(found)
            if job.tasks_per_socket and here >= job.tasks_per_socket:
                here = job.tasks_per_socket
                break
        found[s] = here
    return _NodeTasks(found, max(uncut - limit, 0) if whole else 0)


def _crowd(tasks: list[_NodeTasks], laid: list[Laid], missing: int) -> None:
    """--overcommit: more tasks on each socket in turn. Slurm looks whether the socket is in use on
    the first node alone."""
    used = [s for s, cores in enumerate(laid[0].cores) if cores]
    while missing > 0:
        before = missing
        for node in tasks:
            for s in used:
                if missing > 0 and s < len(node.by_socket):
                    node.by_socket[s] += 1
                    missing -= 1
        if missing == before:
            return


def _add_tasks(job: JobCounts, laid: list[Laid], tasks: list[_NodeTasks]) -> None:
    """The same before 23.02: there the sockets of the last node are tested, in the cores of the
    first ones (_build_tasks_per_node_sock)."""
    held = [core < count for node in laid for count in node.cores for core in range(_wide(node))]
    wide, sockets = _wide(laid[-1]), len(laid[-1].cores)
    rest = job.tasks - sum(sum(one.by_socket) for one in tasks)
    some = [s for s in range(sockets) if any(held[s * wide : (s + 1) * wide])]
    while rest > 0 and some:
        for one in tasks:
            for s in some:
                if rest > 0 and s < len(one.by_socket):
                    one.by_socket[s] += 1
                    rest -= 1
        if not any(s < len(one.by_socket) for one in tasks for s in some):
            return


def _wide(node: Laid) -> int:
    """Cores of a socket."""
    return node.room.shape.cores_per_socket


def _by_task_in_turn(job: JobCounts, one: GpuCandidates, tasks: _NodeTasks, taking: Taking) -> int:
    each, by_socket = one.ask.per_task, tasks.by_socket
    for s in range(len(one.gpus)):
        if s == 0 or by_socket[s]:
            taking.take(s, sum(by_socket[: s + 1]) * each - len(taking.taken))
    goal = sum(by_socket) * each
    taking.by_score([-1, *range(len(one.gpus))], goal - len(taking.taken), taking.scores())
    return 0


def _by_task(job: JobCounts, one: GpuCandidates, tasks: _NodeTasks, taking: Taking) -> int:
    need = tasks.count * one.ask.per_task
    for s in range(len(one.gpus)):
        need -= taking.take(s, min(need, tasks.by_socket[s] * one.ask.per_task), sort=True)
    for place in (-1, *([] if job.enforce else range(len(one.gpus)))):
        need -= taking.take(place, need, sort=True)
    return need


def _by_job(
    job: JobCounts, one: GpuCandidates, node: Laid, taking: Taking, total: int, left: int
) -> None:
    """As many as there are beside the cores, one left for each node still to come."""
    ask, release = one.ask, job.release
    even = release.shares_gpus_over_sockets
    most = ask.per_job - total - left
    if release.caps_gpus_of_node:
        most = min(most & _U64, one.total)  # _set_job_bits1: below zero it is very many
    per_gpu = ask.cpus_per_gpu or ask.tasks_per_gpu * job.cpus
    if per_gpu:
        threads = node.room.threads
        if release.honours_threads_per_core and job.threads:
            threads = min(threads, job.threads)
        most = min(most, node.sum_cores * threads // per_gpu)
    wide = most > 1 and bool(taking.links)
    goal = 1 << 16 if wide else (max(most, 1) if even else most)
    used = _used(node)
    if even:
        each = goal / node.sum_cores
        for s in used:
            taking.take(s, min(goal - len(taking.taken), int(node.cores[s] * each)))
    for place in (-1, *used):
        taking.take(place, goal - len(taking.taken))
    if not (even and job.enforce):
        for s in _unused(node):
            if not taking.taken:
                taking.take(s, 1)
    if len(taking.taken) > most and wide:
        best_of(taking, most)


def _shares(
    job: JobCounts, one: GpuCandidates, node: Laid, tasks: _NodeTasks
) -> dict[int, int] | None:
    """Shares of GPUs, as a rule of one; None where no one GPU has enough."""
    ask = one.ask
    several = "MULTIPLE_SHARING_GRES_PJ" in job.select
    if not job.release.packs_shards:
        return _shares_of_node(one, node) if ask.per_node else {}
    got: dict[int, int] = {}
    if ask.per_node:
        if _of_one(job, one, _used(node), ask.per_node, got, single=True):
            return got
        if several and _of_one(job, one, _used(node), ask.per_node, got, single=False):
            return got
        return None
    left = tasks.count
    if not several:
        used = [s for s, n in enumerate(tasks.by_socket) if n]
        return got if _of_one(job, one, used, left * ask.per_task, got, single=True) else None
    for s in range(len(tasks.by_socket)):
        for _ in range(tasks.by_socket[s]):
            fits = left and _of_one(
                job, one, [s], ask.per_task, got, single=True, fresh=job.one_sharing
            )
            if not fits:
                break
            left -= 1
    return None if left else got


def _shares_of_node(one: GpuCandidates, node: Laid) -> dict[int, int]:
    need = one.ask.per_node
    for place in (one.anywhere, *(one.gpus[s] for s in _used(node)), sorted(one.each)):
        for gpu in place:
            if one.each[gpu] >= need:
                return {gpu: need}
    return {}


def _of_one(
    job: JobCounts,
    one: GpuCandidates,
    used: list[int],
    need: int,
    got: dict[int, int],
    *,
    single: bool,
    fresh: bool = False,
) -> bool:
    rest = [] if job.enforce else [s for s in range(len(one.gpus)) if s not in used]
    for place in (*(one.gpus[s] for s in used), one.anywhere, *(one.gpus[s] for s in rest)):
        for gpu in place:
            free = one.each[gpu] - got.get(gpu, 0)
            if not need or free < (need if single else 1) or (fresh and gpu in got):
                continue
            got[gpu] = got.get(gpu, 0) + min(free, need)
            need -= min(free, need)
    return not need
