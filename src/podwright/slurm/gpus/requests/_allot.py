"""What one partition gives to a job: nodes, cores and GPUs, or why it gives nothing.

The order of the checks is Slurm's own: limits of the partition, then whether the job could ever
run there, then whether it starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from podwright.slurm.gpus.requests._choose import choose, chosen_by_switches
from podwright.slurm.gpus.requests._counts import HeldNode, Wants
from podwright.slurm.gpus.requests._eligible import (
    backfill_tries,
    counted,
    eligible,
    exclusive_sets,
    matches,
    modelled,
)
from podwright.slurm.gpus.requests._node_capacity import NodeRoom
from podwright.slurm.gpus.requests._pick import pick
from podwright.slurm.gpus.requests._request_details import RequestDetails
from podwright.slurm.gpus.requests._slurmctld_job import JobCounts, job_of
from podwright.slurm.gpus.requests._spread import Laid, spread
from podwright.slurm.gpus.requests._tree import leaves_of
from podwright.slurm.gpus.requests._units import MIB, whole_mib
from podwright.slurm.gpus.requests._values import SlurmCluster, SlurmPartition, SlurmRefusal
from podwright.slurm.site.releases import Release


@dataclass(frozen=True)
class Limit:
    """A limit of a partition that a job exceeds. of_size: on nodes or CPUs; late: of nodes that
    --nodes does not say, which is found only where nodes are chosen."""

    text: str
    of_size: bool = True
    of_memory: bool = False
    late: bool = False


@dataclass
class Allotted:
    """Nodes of a job, as its tasks are sized for and as it holds them."""

    laid: list[Laid]
    held: list[HeldNode]
    whole: bool = False
    cpus: int = 1  # of a task, as slurmctld has it
    cpus_told: bool = False  # and as steps have it, whatever the job said
    bound: bool = False  # to the cores beside its GPUs
    sized: bool = True  # somebody said how much memory it gets
    cpu_bind: str = ""  # of the partition


@dataclass
class Tried:
    """What a partition says. verdict: takes (it may start there, and does where `start` is set),
    never, limit (it is over a limit), skips (over a limit that keeps it from being tested)."""

    start: Allotted | None
    verdict: str
    reason: str
    until: str = ""  # what would let it start, where it waits for that alone


_RACE = (
    "memory that some nodes lack where it is not allocated: backfill passes over them, the main "
    "scheduler does not, and the first of the two starts the job"
)
_SWITCH_WAIT = "for the time of --switches, or max_switch_wait (300 s), before it starts elsewhere"


def allot(
    w: Wants, said: RequestDetails, site: SlurmCluster, partition: SlurmPartition, release: Release
) -> Tried | SlurmRefusal:
    """What one partition says to a job; a Refusal where that is not modelled."""
    job = _job(w, said, site, partition, release)
    limit = _limits(job, w, said, site, partition)
    over = f"{job.min_nodes} nodes are asked for, and {job.max_nodes} are the most"
    if limit and not partition.up and not (limit.of_memory and site.enforce != "NO"):
        limit = None  # _part_access_check looks at limits of partitions that schedule jobs
    wishes, preferred = _wishes(said.constraint), _wishes(said.prefer)
    if isinstance(wishes, SlurmRefusal):
        return wishes
    if isinstance(preferred, SlurmRefusal):
        return preferred
    if limit and site.enforce != "NO":
        return Tried(None, "limit", limit.text)
    # What is tested at submission: with --prefer its features alone, whatever the others are.
    first = preferred if said.prefer and site.prefers else wishes
    never = not any(_named_match(job, site, wish) for wish in first)
    several = len(set(said.partitions)) > 1
    if limit and not limit.late and limit.of_size and release.skips_oversized_jobs:
        return Tried(None, "skips", limit.text)
    if limit and not (limit.late or several or release.tests_jobs_over_limits):
        return Tried(None, "limit", limit.text)
    if never:
        return Tried(None, "never", _never(partition))
    if limit and limit.of_size and release.skips_oversized_jobs:
        return Tried(None, "skips", limit.text)
    if limit and not (several or release.tests_jobs_over_limits):
        return Tried(None, "limit", limit.text)
    shut = f"partition {partition.name}"
    down = Tried(None, "takes", f"{shut} is down", f"until {shut} is up again")
    if not (partition.up or several) and release.keeps_jobs_of_down_partitions:
        return down
    excluded = _out(w, said, site)
    fit = (eligible(job, site, partition, excluded, _of_all(wish), said.disk) for wish in first)
    if (limit or not partition.up) and 0 < job.max_nodes < job.min_nodes and any(fit):
        return Tried(None, "limit", limit.text if limit else over)
    away = job.required & site.down
    if away and any(
        job.required
        <= {
            site.nodes[n][0]
            for n in eligible(job, site, partition, excluded, _of_all(wish), said.disk)
        }
        and _reaches_named(w, said, site, partition, release, excluded, wish)
        for wish in first
    ):
        names = ", ".join(sorted(away))
        until = f"until {names} takes jobs again"
        return Tried(None, "takes", f"{names} is down or drained", until)
    if not _ever(w, said, site, partition, release, excluded, first):
        return Tried(None, "never", _never(partition))
    if limit:
        return Tried(None, "takes", limit.text)
    if not partition.up:
        return down
    for wish in [*(preferred if said.prefer else []), *wishes]:
        every = eligible(job, site, partition, excluded, _of_all(wish), said.disk)
        if not job.required <= {site.nodes[n][0] for n in every}:
            continue
        up = [n for n in every if site.nodes[n][0] not in site.down]
        found = _start(job, said, site, up, wish)
        if found is None:
            continue
        job = _job(w, said, site, partition, release)
        some = [n for n in up if backfill_tries(job, site.shapes[site.nodes[n][1]])]
        if w.options.queued and job.required <= {site.nodes[n][0] for n in some} and some != up:
            other = _start(job, said, site, some, wish)
            if other is not None and other.held != found.held:
                return SlurmRefusal("unknown", f"not modelled: {_RACE}")
        return Tried(replace(found, cpu_bind=partition.cpu_bind), "takes", "")
    if said.switches:
        anywhere = allot(w, replace(said, switches=0), site, partition, release)
        if isinstance(anywhere, Tried) and anywhere.start:
            why = f"its nodes hang at more than {said.switches} switches"
            return Tried(None, "takes", why, _SWITCH_WAIT)
    return Tried(None, "takes", "its tasks and GPUs never fit together")


def reaches_nodes(
    w: Wants, said: RequestDetails, site: SlurmCluster, partition: SlurmPartition, release: Release
) -> bool:
    """Whether nodes of a partition are handed to job_test, be they too few (_pick_best_nodes)."""
    job = _job(w, said, site, partition, release)
    wishes = _wishes(said.prefer if said.prefer and site.prefers else said.constraint)
    for wish in [] if isinstance(wishes, SlurmRefusal) else wishes:
        found = eligible(job, site, partition, _out(w, said, site), _of_all(wish), said.disk)
        named = {site.nodes[n][0] for n in found}
        if found and job.required <= named:
            return True
    return False


def _out(w: Wants, said: RequestDetails, site: SlurmCluster) -> frozenset[str]:
    """The nodes that the job may not have."""
    out = frozenset(said.excluded)
    if w.pool:
        out |= {name for name, _ in site.nodes} - set(w.pool)
    return out


def _named_match(job: JobCounts, site: SlurmCluster, wish: str) -> bool:
    """Whether all nodes that must take part have these features."""
    return not _of_all(wish) or all(
        matches(wish, site.shape_of(name).features) for name in job.required
    )


def _ever(
    w: Wants,
    said: RequestDetails,
    site: SlurmCluster,
    partition: SlurmPartition,
    release: Release,
    excluded: frozenset[str],
    wishes: list[str],
) -> bool:
    """Whether the job could start if all nodes were up and idle, as slurmctld tests it: with the
    nodes that are up, with these again, and with all (_pick_best_nodes)."""
    for wish in wishes:
        job = _job(w, said, site, partition, release)
        every = eligible(job, site, partition, excluded, _of_all(wish), said.disk)
        if not job.required <= {site.nodes[n][0] for n in every}:
            continue
        up = [n for n in every if site.nodes[n][0] not in site.down]
        if counted(wish) and not _take_counted(job, site, up, wish, trial=True):
            # What only nodes that are down hold is waited for (ESLURM_NODES_BUSY).
            job = _job(w, said, site, partition, release)
            if _some_counted(job, site, up, wish, trial=True) is None and any(
                _some_counted(job, site, some, wish, trial=True) for some in (up, every)
            ):
                return True
            continue
        looked = {} if counted(wish) else job.looked
        for some in (up, up, every):
            again = replace(job)
            again.looked = looked
            if choose(again, site, list(some), trial=True) is not None:
                return True
    return False


def _of_all(wish: str) -> str:
    """The features that all nodes must have: none where they are counted."""
    return "" if counted(wish) else wish


def _choose(
    job: JobCounts, site: SlurmCluster, some: list[int], wish: str, *, trial: bool
) -> list[NodeRoom] | None:
    """The nodes; of a counted feature those that have it first, which then must take part."""
    if counted(wish) and not _take_counted(job, site, some, wish, trial=trial):
        return None
    return choose(job, site, some, trial=trial)


def _some_counted(
    job: JobCounts, site: SlurmCluster, some: list[int], wish: str, *, trial: bool
) -> list[NodeRoom] | None:
    """As many nodes with a counted feature as it says: whichever, also where others are named."""
    feature, count = counted(wish) or ("", 0)
    if job.max_nodes and count > job.max_nodes:
        return None
    first = replace(job, min_nodes=count, want_nodes=count, low_said=count, min_cpus=count)
    first.required, first.looked = frozenset(), {}
    if job.tasks_per_node:
        first.tasks = count * job.tasks_per_node
    having = [n for n in some if feature in site.shapes[site.nodes[n][1]].features]
    found = choose(first, site, having, trial=trial)
    return found if found and (trial or _lay(first, found)) else None


def _take_counted(
    job: JobCounts, site: SlurmCluster, some: list[int], wish: str, *, trial: bool
) -> bool:
    """Makes the nodes of a counted feature take part, beside those that are named
    (_get_req_features); False where there are too few, or then too many in all."""
    found = _some_counted(job, site, some, wish, trial=trial)
    if found is None:
        return False
    job.required |= {room.name for room in found}
    job.min_cpus = max(job.min_cpus, len(job.required))
    job.min_nodes = job.low_said = job.want_nodes = max(job.min_nodes, len(job.required))
    return not (job.max_nodes and job.want_nodes > job.max_nodes)


def _reaches_named(
    w: Wants,
    said: RequestDetails,
    site: SlurmCluster,
    partition: SlurmPartition,
    release: Release,
    excluded: frozenset[str],
    wish: str,
) -> bool:
    """Whether Slurm comes to look if named nodes are up: not before it has those of a counted
    feature (_get_req_features)."""
    if not counted(wish):
        return True
    job = _job(w, said, site, partition, release)
    every = eligible(job, site, partition, excluded, "", said.disk)
    up = [n for n in every if site.nodes[n][0] not in site.down]
    return _take_counted(job, site, up, wish, trial=True)


def _job(
    w: Wants, said: RequestDetails, site: SlurmCluster, partition: SlurmPartition, release: Release
) -> JobCounts:
    job = job_of(w, site, partition, release, spread=said.spread)
    _limit_memory(job, w, site, partition)
    job.whole = said.share == "none" or partition.share == 0
    job.whole_user = said.share == "user"
    job.may_share = not job.whole
    job.contiguous, job.spread = said.contiguous, said.spread
    job.enforce = "enforce-binding" in said.flags or (
        release.enforces_binding_by_site
        and "ENFORCE_BINDING_GRES" in site.select
        and "disable-binding" not in said.flags
    )
    job.one_sharing = "one-task-per-sharing" in said.flags or (
        "ONE_TASK_PER_SHARING_GRES" in site.select
        and not {"allow-task-sharing", "multiple-tasks-per-sharing"} & said.flags
    )
    job.plane = said.plane
    job.block = said.second == "block" or (
        "CR_CORE_DEFAULT_DIST_BLOCK" in site.select and said.second in ("", "*")
    )
    if said.first == "plane":
        job.block = True
    job.required = frozenset(w.named)
    job.switches = said.switches
    if job.overcommit and job.min_cpus == job.low_said:
        for count in (job.threads, job.cores, job.sockets):
            job.min_cpus *= max(count, 1)
    return job


def _limit_memory(job: JobCounts, w: Wants, site: SlurmCluster, partition: SlurmPartition) -> None:
    """MaxMemPerCPU: more CPUs of a task, or of a node, where the memory is more than theirs."""
    most, per_cpu = partition.most_memory if partition.most_memory[0] else site.most_memory
    each, mine_per_cpu = job.memory
    if not most or not per_cpu:
        return
    if mine_per_cpu:
        if each <= most:
            return
        ratio = -(-each // most)
        job.cpus *= ratio
        job.cpus_told = True
        job.memory = (whole_mib(-(-each // ratio)), True)
        tasks = job.tasks or job.low_said * job.tasks_per_node
        if tasks:
            job.min_cpus = tasks * job.cpus
        else:
            job.least = job.cpus
        return
    if not each:
        each = _first_shape(site, partition).memory
    least = -(-each // most)
    if job.least < least:
        job.least = least
        if job.tasks_per_node:
            job.cpus = -(-least // job.tasks_per_node)
        elif job.release.limits_cpus_of_tasks and w.tasks and w.min_nodes:
            job.cpus = -(-least * w.min_nodes // w.tasks)
            job.least = job.cpus * w.tasks // w.min_nodes
            job.min_cpus = max(job.min_cpus, job.least)
        elif job.release.limits_cpus_of_tasks and not w.tasks:
            job.cpus = max(job.cpus, least)  # one task of a node is taken


def _first_shape(site: SlurmCluster, partition: SlurmPartition):  # type: ignore[no-untyped-def]
    for name, kind in site.nodes:
        if not partition.nodes or name in partition.nodes:
            return site.shapes[kind]
    return site.shapes[0]


def _limits(
    job: JobCounts, w: Wants, said: RequestDetails, site: SlurmCluster, partition: SlurmPartition
) -> Limit | None:
    """Which limit of the partition the job exceeds."""
    here = [
        site.shapes[kind]
        for name, kind in site.nodes
        if not partition.nodes or name in partition.nodes
    ]
    low, high = w.min_nodes or 1, w.max_nodes or 0
    if said.spread:
        high = job.most_said  # _copy_job_desc_to_job_record: the site's nodes, or the tasks
    cpus = sum(shape.all_cpus for shape in here)
    where = f"partition {partition.name}" if partition.name else "the cluster"
    if w.min_cpus > cpus:
        return Limit(f"{w.min_cpus} cores are asked for, {where} has {cpus}")
    if w.min_cpus > partition.max_cpus_per_node * len(here):
        return Limit(f"{where} gives {partition.max_cpus_per_node} CPUs of a node at most")
    if low > len(here):
        return Limit(f"{low} nodes are asked for, {where} has {len(here)}")
    sent = low if w.sent_nodes is None or site.enforce == "NO" else w.sent_nodes
    if min(low, sent) < partition.min_nodes:
        return Limit(f"{where} takes jobs of {partition.min_nodes} nodes or more")
    if w.gpus_place_tasks and -(-(w.tasks or 1) // w.gpus_place_tasks) > partition.max_nodes:
        return Limit(f"{where} takes jobs of {partition.max_nodes} nodes at most", late=True)
    if (high or low) > partition.max_nodes:
        return Limit(f"{where} takes jobs of {partition.max_nodes} nodes at most", late=not high)
    time = said.time_min if said.time_min is not None else said.time
    if time is not None and time > partition.max_time:
        return Limit(
            f"{time} minutes are asked for, {where} allows {partition.max_time}", of_size=False
        )
    most, per_cpu = partition.most_memory if partition.most_memory[0] else site.most_memory
    each, mine_per_cpu = job.memory
    if most and not per_cpu:
        if mine_per_cpu:
            each *= _cpus_of_memory(job, w, [shape.all_cpus for shape in here] or [1])
        elif not each:
            each = here[0].memory if here else 0
        if each > most:
            return Limit(
                f"{each // MIB} MiB of a node are asked for, {where} allows {most // MIB}",
                of_size=False,
                of_memory=True,
            )
    return None


def _cpus_of_memory(job: JobCounts, w: Wants, here: list[int]) -> int:
    if job.whole:
        return max(here) if job.release.limits_memory_of_richest_node else here[0]
    cpus = job.tasks_per_node or 1
    if job.tasks and w.max_nodes:
        cpus = max(cpus, -(-job.tasks // w.max_nodes))
    return max(cpus * w.cpus, job.own_least)


def _wishes(text: str) -> list[str] | SlurmRefusal:
    """Features to try, one expression after the other."""
    if not text:
        return [""]
    if modelled(text) or counted(text):
        return [text]
    sets = exclusive_sets(text)
    if sets is not None:
        return sets
    return SlurmRefusal("unknown", f"features as in {text} are not modelled")


def _start(
    job: JobCounts, said: RequestDetails, site: SlurmCluster, up: list[int], wish: str
) -> Allotted | None:
    if job.max_nodes < job.min_nodes or len(job.required) > job.max_nodes:
        return None
    rooms = _choose(job, site, up, wish, trial=False)
    if rooms is None:
        return None
    by_switch = said.switches and chosen_by_switches(job, site)
    if by_switch and leaves_of(site, {r.number for r in rooms}) > said.switches:
        return None
    return _lay(job, rooms)


def _lay(job: JobCounts, rooms: list[NodeRoom]) -> Allotted | None:
    """Tasks, cores and GPUs on the chosen nodes; None where only now they do not fit."""
    laid = spread(job, rooms, exclusive=job.whole)
    if not laid:
        return None
    picked = pick(job, laid)
    return None if picked is None else _held_nodes(job, laid, picked)


def _held_nodes(
    job: JobCounts, laid: list[Laid], picked: list[list[dict[int, int]]]
) -> Allotted | None:
    held = []
    counts = _cpus_for_memory(job, laid)
    for node, some, counted_cpus in zip(laid, picked, counts, strict=True):
        shape = node.room.shape
        gpus: set[int] = set()
        shares: dict[int, int] = {}
        for ask, got in zip(job.asks, some, strict=True):
            if ask.shared:
                shares.update(got)
            else:
                gpus.update(got)
        if job.whole:
            gpus = set(range(shape.gpus))
            shares = {}
        if not node.cpus:
            gpus, shares = set(), {}  # job_res_add_job passes over it: it holds the cores alone
        memory = _memory(job, node, some, counted_cpus)
        if memory > shape.memory and not _memory_by_gpus(job):
            return None  # what GPUs bring is held against the node before, and not again
        held.append(
            HeldNode(
                cores=tuple(node.cores),
                gpus=tuple(sorted(gpus)),
                shape=shape,
                name=node.room.name,
                shares=tuple(sorted(shares.items())),
                memory=memory if any(node.cores) else 0,  # Slurm shows what is beside cores
                job_cpus=node.cpus,
            )
        )
    sized = bool(job.memory[0]) or _memory_by_gpus(job)
    return Allotted(laid, held, job.whole, job.cpus, job.cpus_told, job.enforce, sized)


def _memory_by_gpus(job: JobCounts) -> bool:
    """Whether the GPUs say how much memory a job gets."""
    return not job.memory_said and any(a.memory_per_gpu or a.default_memory for a in job.asks)


def _cpus_for_memory(job: JobCounts, laid: list[Laid]) -> list[int]:
    """The CPUs of each node by which its memory is counted (job_resources_get_node_cpu_cnt).

    Of whole nodes the threads that the job leaves idle are counted first (_set_task_dist): for
    each node that has some, but into the first nodes of the job, whichever have some.
    """
    cpus = [one.cpus for one in laid]
    if not (job.by_core and job.threads):
        return cpus
    uneven = [one.room.threads for one in laid if one.room.threads != job.threads]
    for at, threads in enumerate(uneven if job.whole else []):
        cpus[at] *= threads
    up = job.release.rounds_cores_of_memory_up
    for at, one in enumerate(laid):
        threads = one.room.threads
        if job.threads < threads:
            cores = -(-cpus[at] // threads) if up else cpus[at] // threads
            cpus[at] = cores * job.threads
    return cpus


def _memory(job: JobCounts, node: Laid, picked: list[dict[int, int]], cpus: int) -> int:
    """Bytes of a node that the job holds; cpus: by which they are counted."""
    shape = node.room.shape
    if not job.counts_memory:
        return 0
    if _memory_by_gpus(job):
        total = 0
        for ask, got in zip(job.asks, picked, strict=True):
            units = sum(shape.units_of(ask.name).values()) if job.whole else sum(got.values())
            total += (ask.memory_per_gpu or ask.default_memory) * units
        return total
    each, per_cpu = job.memory
    if not per_cpu:
        return each or shape.memory
    return cpus * each


def _never(partition: SlurmPartition) -> str:
    where = f" of partition {partition.name}" if partition.name else ""
    return f"no idle set of the nodes{where} can hold it"
