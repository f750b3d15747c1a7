"""How many tasks and CPUs a node offers, and on which sockets: cores beside the wanted GPUs first.

On the first try only cores of sockets whose GPUs are wanted are offered; should that not do, all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._node_capacity import GpuCandidates, NodeRoom
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts

_ANY = 1 << 40  # tasks without a bound


@dataclass
class _Try:
    """One look at one node."""

    job: JobCounts
    node: NodeRoom
    first: bool
    nodes: int  # still to be found
    cpus: int
    low: int
    most: int
    step: int
    here: list[int]  # cores of each socket, as they are given up
    per_core: int
    all_cores: int
    wanted: set[int] = field(default_factory=set)
    said: bool = False  # --cpus-per-gpu
    fewest: int = 0  # cores that must be given

    @property
    def strict(self) -> bool:
        """Whether sockets without wanted GPUs are left out."""
        return self.job.enforce or self.first


def window(job: JobCounts, node: NodeRoom) -> tuple[int, int]:
    """How many tasks one node must and may run."""
    shape, tasks = node.shape, job.tasks
    if job.tasks_per_node:
        return job.tasks_per_node, job.tasks_per_node
    if job.tasks_per_socket:
        return job.tasks_per_socket, job.tasks_per_socket * shape.sockets
    per_core = job.mc_tasks_per_core()
    if per_core:
        return per_core, per_core * (shape.cores - len(shape.reserved))
    if job.tasks_per_gpu:
        return _window_of_gpus(job)
    if job.most_said == 1:
        return (tasks, tasks) if tasks else (1, _ANY)
    if tasks == 1 or (tasks and tasks == job.low_said == job.most_said):
        return 1, 1
    return 1, _ANY


def _window_of_gpus(job: JobCounts) -> tuple[int, int]:
    tasks, low = job.tasks, job.low_said
    if not job.release.tasks_per_gpu_is_range:
        return (tasks, tasks) if low == 1 else (tasks // low, tasks // low)
    if low == job.most_said:
        return tasks // low, tasks // low
    return job.tasks_per_gpu, tasks


def offered_cpus(job: JobCounts, node: NodeRoom, *, first: bool, nodes: int) -> int:
    """CPUs that the node offers, 0 where it cannot take part. Changes the node as Slurm does.

    nodes: how many are still to be found.
    """
    low, most = window(job, node)
    if not job.overcommit:
        fit = node.cpus // job.cpus
        most = 0 if fit < low else min(fit, most)
    release = job.release
    if release.tasks_bound_gpus and job.tasks:
        most = min(most, job.tasks)
    threads = node.threads
    fine = release.honours_threads_per_core and job.threads
    per_core = min(threads, job.threads) if fine else threads
    t = _Try(
        job, node, first, max(nodes, 1), node.cpus, low, most, low, list(node.cores), per_core,
        sum(node.cores),
    )  # fmt: skip
    if job.asks and most:
        _all(t)
    cpus = t.cpus
    if job.asks and most and (t.most or not release.trims_cores_last):
        if release.trims_cores_last:
            node.keep = t.here
        if not t.said and (job.cpus > 1 or not job.one_task_per_core):
            fewest = t.fewest * t.per_core if release.keeps_cores_of_gpus else 0
            cpus = min(cpus, max(t.most * job.cpus, fewest))
    if not t.most:
        t.fewest = cpus = 0
    node.tasks = min(t.most, _ANY)
    node.gpu_cpus = t.fewest * job.cpus_per_core(threads)
    return cpus


def _all(t: _Try) -> None:
    near = t.node.near
    for n in sorted(range(len(near)), key=lambda n: (0 if near[n].ask.per_socket else 1, n)):
        if not _one(t, near[n], t.job.found[n]):
            t.most = 0
            return


def _estimate(job: JobCounts, one: GpuCandidates) -> int:
    """CPUs per GPU where tasks and GPUs divide evenly."""
    tasks, gpus = job.tasks, one.ask.per_job
    if not tasks or not gpus:
        return 0
    if tasks >= gpus and tasks % gpus == 0:
        return tasks // gpus * job.cpus
    if gpus % tasks == 0 and job.cpus % (gpus // tasks) == 0:
        return job.cpus // (gpus // tasks)
    return 0


def _per_gpu(t: _Try, one: GpuCandidates) -> int:
    job, ask = t.job, one.ask
    if ask.cpus_per_gpu:
        t.said = True
        return ask.cpus_per_gpu
    if ask.tasks_per_gpu:
        return ask.tasks_per_gpu * job.cpus
    if ask.default_cpus:
        t.said = True
        return ask.default_cpus
    guess = job.release.estimates_cpus_per_gpu and t.first and not ask.shared
    return _estimate(job, one) if guess else 0


def _bound(t: _Try, one: GpuCandidates, total: int, sockets: int) -> int | None:
    """GPUs that this node may give at most, 0 for no bound; None where they are too few."""
    ask, release = one.ask, t.job.release
    left = max(ask.per_job - total, 0)
    if release.reserves_gpus_for_nodes and ask.per_job:
        if left:
            left -= t.nodes - 1
        else:
            left = ask.per_node or max(ask.per_task, ask.per_socket * sockets, 1)
    if left < 0:  # unsigned in Slurm: no bound
        left = 1 << 60
    if release.tasks_bound_gpus and ask.per_task and t.most < _ANY:
        if ask.per_task * t.low > left:
            return None
        left = min(left, ask.per_task * t.most)
    return min(left, one.most) if one.most and left else one.most


def _one(t: _Try, one: GpuCandidates, total: int) -> bool:
    """One ask; False where the node lacks it."""
    job, ask, release = t.job, one.ask, t.job.release
    if release.restores_gpus_on_retry and t.first and not one.uncut:
        one.uncut = one.total
    elif release.restores_gpus_on_retry and one.uncut:
        one.total = one.uncut
    sockets = max(1, job.sockets)
    bound = _bound(t, one, total, sockets)
    if bound is None or (bound and max(ask.per_node, ask.per_socket * sockets) > bound):
        return False
    if ask.per_node and ask.per_task:
        tasks = ask.per_node // ask.per_task
        if not tasks or tasks > t.most or tasks < t.low:
            return False
        if t.most == _ANY or t.most > tasks:
            t.most = bound
    per_gpu = _per_gpu(t, one)
    seen, chosen, cores = _sockets(t, one, bound, per_gpu)
    if per_gpu:
        possible = t.cpus // per_gpu
        bound = min(possible, bound) if bound else possible
        seen = min(seen, bound)
    if release.caps_gpus_of_node:
        seen = min(seen, bound or seen, ask.per_node or seen)
    if not seen or max(ask.per_node, ask.per_task) > seen:
        return False
    seen = _bound_tasks(t, one, seen, per_gpu)
    t.low = t.low // t.step * t.step
    t.most = t.most // t.step * t.step if t.most < _ANY else _ANY
    if not t.most:
        return False
    if t.strict:
        for s in set(range(len(t.here))) - t.wanted:
            cores -= t.here[s]
            _give_up(t, s, t.here[s], cores + t.here[s], bits=True)
    if t.most == _ANY:
        if per_gpu:
            one.total = min(t.cpus // per_gpu, one.total)
        return True
    needed, seen = _needed(t, one, seen, per_gpu, chosen, cores)
    if needed > cores or (job.enforce and needed * _threads(t) > t.cpus):
        return False
    _trim(t, needed, cores, chosen)
    if per_gpu:
        one.total = min(t.cpus // per_gpu, one.total)
        if max(ask.per_node, ask.per_task) > one.total:
            return False
    if release.caps_gpus_of_node:
        one.total = min(seen, one.total)
    if job.enforce or (release.keeps_cores_of_gpus and t.said):
        t.fewest = min(t.fewest, needed) if t.fewest else needed
    return True


def _threads(t: _Try) -> int:
    """CPUs of a core that the job uses."""
    return min(t.node.threads, t.job.threads) if t.job.threads else t.node.threads


def _sockets(t: _Try, one: GpuCandidates, bound: int, per_gpu: int) -> tuple[int, int, int]:
    """(GPUs seen, sockets chosen, cores offered): the sockets with most cores first."""
    job, ask, each = t.job, one.ask, t.job.release.wants_all_sockets
    seen, enough, chosen, offered = one.any_units, False, 0, 0
    least = -(-max(t.low, 1) * job.cpus // t.per_core)
    for s in sorted(range(len(t.here)), key=lambda s: (-t.here[s], s)):
        beside = one.beside[s]
        if t.strict and per_gpu:
            beside = min(beside, t.here[s] * t.per_core // per_gpu)
        around = one.any_units + beside
        if ask.per_socket > around or not around:
            if ask.per_socket > around or job.enforce:
                one.total -= one.beside[s]
                one.beside[s] = 0
            if t.first and t.all_cores > least:
                gone = min(t.all_cores - least, t.here[s])
                _give_up(t, s, gone, t.all_cores, bits=True)
                t.all_cores -= gone
        offered += t.here[s]
        if t.strict and not t.here[s]:
            continue
        seen += beside
        if (each and one.any_units) or (not enough and (beside or not each)):
            t.wanted.add(s)
            chosen += 1
        if (each or not one.any_units) and (
            (bound and seen >= bound) or (ask.per_node and seen >= ask.per_node)
        ):
            enough = True
    return seen, chosen, offered


def _bound_tasks(t: _Try, one: GpuCandidates, seen: int, per_gpu: int) -> int:
    """Fewer tasks where the GPUs allow no more; the GPUs that then count."""
    job, ask = t.job, one.ask
    follow = job.release.gpus_bound_tasks
    if follow and per_gpu:
        by_gpus = per_gpu * seen
        if by_gpus < t.low * job.cpus or by_gpus < job.least:
            t.most = t.low
        else:
            t.most = min(t.most, by_gpus // job.cpus)
    if ask.per_task:
        shared = job.release.packs_shards and ask.shared
        t.most = min(t.most, _tasks_of_shares(t, one) if shared else seen // ask.per_task)
        if follow and not ask.per_node:
            seen = min(t.most * ask.per_task, seen)
    if follow and ask.tasks_per_gpu:
        fit = seen * ask.tasks_per_gpu
        while fit > t.most:
            fit -= ask.tasks_per_gpu
            seen -= 0 if ask.per_node else 1
        t.most = min(t.most, fit)
    return seen


def _tasks_of_shares(t: _Try, one: GpuCandidates) -> int:
    """Tasks for which one GPU has shares enough; or all GPUs, where the site says so."""
    counts = [
        int(n >= one.ask.per_task) if t.job.one_sharing else n // one.ask.per_task
        for n in one.each.values()
    ]
    return sum(counts) if "MULTIPLE_SHARING_GRES_PJ" in t.job.select else max(counts, default=0)


def _needed(
    t: _Try, one: GpuCandidates, seen: int, per_gpu: int, chosen: int, cores: int
) -> tuple[int, int]:
    """(cores needed, GPUs that then count)."""
    job, ask, threads = t.job, one.ask, _threads(t)
    each, follow = job.cpus, job.release.gpus_bound_tasks
    if job.mc_tasks_per_core() == 1 and each % threads:
        each = -(-each // threads) * threads
    needed = t.most * each
    while t.most >= t.low:
        needed = -(-needed // threads)
        if needed <= cores:
            break
        t.most -= 1
        needed = t.most * each
        if follow and not ask.per_node and (ask.per_task or ask.tasks_per_gpu):
            seen = min(seen, t.most * ask.per_task if ask.per_task else t.most // ask.tasks_per_gpu)
    if per_gpu:
        gpus = ask.per_node or ask.per_socket * chosen or ask.per_task * t.most or seen or 1
        if follow:
            t.most = min(t.most, gpus * per_gpu)
        needed = max(needed, -(-gpus * per_gpu // t.per_core))
    if job.enforce:
        needed = max(needed, chosen)
    return needed, seen


def _give_up(t: _Try, socket: int, count: int, cores: int, *, bits: bool) -> None:
    """Offer fewer cores of a socket. cores: that were offered before, by which CPUs are counted.

    Where they are trimmed last, most of this bounds only how many may be used, not which (`bits`).
    """
    if not count:
        return
    t.here[socket] -= count
    node = t.node
    if not t.job.release.trims_cores_last:
        before = sum(node.cores)
        node.cores[socket] -= count
        for left in range(before - 1, before - count - 1, -1):
            if left * t.per_core < t.cpus:
                t.cpus -= t.per_core
        return
    t.cpus = min(t.cpus, (cores - count) * t.per_core)
    if bits:
        node.cores[socket] = max(node.cores[socket] - count, 0)
    if not t.here[socket]:
        node.cores[socket] = 0


def _trim(t: _Try, needed: int, cores: int, chosen: int) -> None:
    """Give back cores beyond those needed: unwanted sockets first, then the fullest in turn."""
    last = t.job.release.trims_cores_last
    if not t.strict and (not last or chosen != len(t.here)):
        for s in range(len(t.here)):
            if s not in t.wanted and cores > needed:
                gone = min(cores - needed, t.here[s])
                _give_up(t, s, gone, cores, bits=False)
                cores -= gone
    while t.wanted and (chosen or not last) and cores > needed:
        fullest = max(t.wanted, key=lambda s: (t.here[s], -s))
        if not t.here[fullest]:
            break
        _give_up(t, fullest, 1, cores, bits=False)
        cores -= 1
