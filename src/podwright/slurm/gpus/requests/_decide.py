"""The decision: a request and a shape of nodes in, what Slurm gives (or refuses) out.

A model of what Slurm 22.05.8, 24.11.5 and 26.05.5 do, written from their sources and held against
them. What differs between releases is asked of `slurm.site.releases`.
"""

from __future__ import annotations

from dataclasses import replace

from podwright.slurm.gpus.requests._allot import Allotted, allot
from podwright.slurm.gpus.requests._counts import HeldNode, Wants
from podwright.slurm.gpus.requests._cpu_bind import binding_of
from podwright.slurm.gpus.requests._gpu_bind import tasks_of
from podwright.slurm.gpus.requests._notes import notes
from podwright.slurm.gpus.requests._partition_list import tried_in_turn
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._request_details import RequestDetails, read_said
from podwright.slurm.gpus.requests._step import run_step
from podwright.slurm.gpus.requests._submit_checks import (
    check_conflicts,
    check_gres,
    check_modelled,
    check_named_partition,
    check_names,
    check_options,
    check_times,
    open_partitions,
)
from podwright.slurm.gpus.requests._unsure import (
    unsure_nodes,
    unsure_step,
    unsure_tasks,
    unsure_whole,
)
from podwright.slurm.gpus.requests._values import (
    Grant,
    NodeGrant,
    NodeHardware,
    SlurmCluster,
    SlurmPartition,
    SlurmRefusal,
    TaskView,
    alone,
)
from podwright.slurm.gpus.requests._wants import wants_of
from podwright.slurm.site.releases import OLDEST, Release, Version, release_of


def explain(
    request: SlurmRequest, where: NodeHardware | SlurmCluster, version: Version = OLDEST
) -> Grant | SlurmRefusal:
    """What an idle cluster gives for this request: a site, or equal nodes of one shape.

    For sbatch and salloc the tasks are those of a plain `srun program` inside the job.
    """
    answer = _explained(request, where, version)
    starts = isinstance(answer, Grant) or answer.stage in ("step", "hangs")
    if starts and read_said(request.given, release_of(version)).held:
        return SlurmRefusal("waits", "it is held", until="until `scontrol release JOB`")
    return answer


def _explained(
    request: SlurmRequest, where: NodeHardware | SlurmCluster, version: Version
) -> Grant | SlurmRefusal:
    site = where if isinstance(where, SlurmCluster) else alone(where)
    release = release_of(version)
    said = read_said(request.given, release)
    refused = check_options(request, said, release) or check_conflicts(request)
    if refused:
        return refused
    partitions = open_partitions(said, site)
    if isinstance(partitions, SlurmRefusal):
        return partitions
    late = check_times(said, partitions)
    if late:
        return late
    least = min(partition.min_nodes for partition in partitions)  # of those that take jobs
    names = tuple(name for name, _ in site.nodes)
    wants = wants_of(request, release, said=said, least_nodes=least, nodes=names)
    if isinstance(wants, SlurmRefusal):
        return wants
    tasks = wants.tasks
    if request.tasks is None and request.tasks_per_node and least > 1:
        tasks = (request.min_nodes or 1) * request.tasks_per_node
    fewer = tasks and tasks < (wants.min_nodes or 1)
    if fewer and release.refuses_fewer_tasks_than_nodes:
        return SlurmRefusal("submit", f"{tasks} tasks are fewer than {wants.min_nodes} nodes")
    cut = request.command == "srun" and release.srun_cuts_nodelist
    refused = (
        check_names(wants, said, site, release, None if cut else request.max_nodes)
        or check_gres(request, said, site)
        or check_modelled(said, site, partitions)
        or check_named_partition(wants, site, partitions)
    )
    if refused:
        return refused
    allotted = _tried(wants, said, site, partitions, release)
    submitted = not isinstance(allotted, SlurmRefusal) or allotted.stage != "submit"
    held = None if isinstance(allotted, SlurmRefusal) else allotted.held
    unsure = unsure_nodes(request, said, site, partitions, release, held)
    if unsure and submitted:
        return SlurmRefusal("unknown", f"this is not modelled: {unsure}")
    if isinstance(allotted, SlurmRefusal):
        if allotted.stage == "submit" and not allotted.would_work:
            smaller = _smaller(wants, site.shapes[0])
            allotted = SlurmRefusal(allotted.stage, allotted.reason, smaller)
        return allotted
    named = isinstance(where, SlurmCluster)
    return _granted(request, said, wants, site, allotted, release, named=named)


def _tried(
    wants: Wants,
    said: RequestDetails,
    site: SlurmCluster,
    partitions: list[SlurmPartition],
    release: Release,
) -> Allotted | SlurmRefusal:
    """What its one partition says, or several of them together."""
    if len(set(said.partitions)) > 1:
        return tried_in_turn(wants, said, site, partitions, release)
    tried = allot(wants, said, site.of(partitions[0]), partitions[0], release)
    if isinstance(tried, SlurmRefusal):
        return tried
    if tried.start is not None:
        return tried.start
    ranged = said.switches and wants.max_nodes not in (0, wants.min_nodes)
    if ranged and tried.verdict == "takes" and release.switches_take_fewer_nodes:
        return SlurmRefusal("unknown", "not modelled: --switches with a range of nodes")
    never = tried.verdict == "never" and not said.held  # it is looked at when it is released
    refused = never or (tried.verdict in ("limit", "skips") and site.enforce != "NO")
    return SlurmRefusal(
        "submit" if refused else "waits", tried.reason, until="" if refused else tried.until
    )


def _granted(
    request: SlurmRequest,
    said: RequestDetails,
    wants: Wants,
    site: SlurmCluster,
    allotted: Allotted,
    release: Release,
    *,
    named: bool,
) -> Grant | SlurmRefusal:
    held, laid = allotted.held, allotted.laid
    if allotted.whole and not release.counts_whole_nodes_as_one:
        refused = _whole_by_type(request, held)
        if refused:
            return refused
    # Neither what --tres-per-task says nor what a lone srun says is compared.
    compared = request.command != "srun" and request.option("cpus-per-task")
    sized = request.cpus_per_task if compared else None
    if sized and allotted.cpus != sized and release.limits_cpus_of_tasks:
        if not allotted.cpus_told:
            return SlurmRefusal(
                "step",
                f"MaxMemPerCPU makes {allotted.cpus} CPUs of a task, and srun in the job refuses "
                f"that beside the {sized} that were asked for",
                f"--cpus-per-task={allotted.cpus}, or less memory",
            )
        request = request._replace(cpus_per_task=allotted.cpus)
    unsure = unsure_step(request, held, release)
    if allotted.whole and request.shares:
        unsure = "shares of GPUs in a job of whole nodes"
    if allotted.whole and not unsure:
        unsure = unsure_tasks(wants, held)
    if unsure:
        return SlurmRefusal("unknown", f"this is not modelled: {unsure}")
    if release.steps_follow_job_cores and "CR_ONE_TASK_PER_CORE" in site.select:
        one = 1 if wants.tasks_per_core is None else wants.tasks_per_core
        wants = replace(wants, tasks_per_core=one)
    whole, bound, memory = allotted.whole, allotted.bound, allotted.sized
    placed = run_step(request, wants, held, release, whole=whole, bound=bound, sized=memory)
    if isinstance(placed, SlurmRefusal):
        if request.option("ntasks-per-socket") and not release.steps_need_room:
            return SlurmRefusal("unknown", "this is not modelled: a step with --ntasks-per-socket")
        return placed
    if allotted.whole:
        unsure = unsure_whole(request, held)
    if unsure:
        return SlurmRefusal("unknown", f"this is not modelled: {unsure}")
    tasks = {one.node: one.tasks for one in placed}
    nodes = tuple(
        NodeGrant(
            one.gpus,
            tasks.get(n, 0),
            one.cores,
            name=one.name if named else "",
            cpus=numbered(one),
            shards=tuple(dict(one.shares).get(gpu, 0) for gpu in range(one.shape.gpus))
            if one.shares
            else (),
            memory=one.memory,
            shape=one.shape,
        )
        for n, one in enumerate(held)
    )
    shapes = [one.shape for one in held]
    binding = binding_of(request, said, wants, site, shapes, allotted.cpu_bind, release)
    if binding.unmodelled and any(shape.affinity for shape in shapes):
        return SlurmRefusal("unknown", f"this is not modelled: {binding.unmodelled}")
    views = tasks_of(request, held, placed, binding, release)
    if isinstance(views, SlurmRefusal):
        return views
    bare = not request.asked  # beside GPUs no plugin unsets what another has set
    if bare and site.hidden_shares & {name for _, name, _ in request.shares}:
        views = [_unset(view, held[view.node].shape) for view in views]
    said_too = notes(request, held[0].shape, laid, held, placed, views)
    if any(one.name in site.assumed and one.gpus for one in held):
        said_too.append(
            "which GPUs these are is not known, only how many: no gres.conf says where each sits "
            "(the numbers are those of GPUs in the order of sockets)"
        )
    return Grant(nodes, tuple(views), (*said_too, *site.cautions))


def _unset(view: TaskView, shape: NodeHardware) -> TaskView:
    """What a task sees without CUDA_VISIBLE_DEVICES."""
    sees = view.sees if shape.confined else tuple(range(shape.gpus))
    return replace(view, variable=None, sees=sees)


def _whole_by_type(request: SlurmRequest, held: list[HeldNode]) -> SlurmRefusal | None:
    """Before 23.02 a job of whole nodes counts the GPUs of each type by themselves."""
    for way, gpus in request.asked:
        for one in held if way == "node" else ():
            kinds = [kind for kind in one.shape.types if gpus.kind in ("", kind)]
            if len(set(kinds)) > 1 and gpus.count > kinds.count(kinds[0]):
                if len({other.shape.types for other in held}) > 1:
                    return SlurmRefusal("unknown", "this is not modelled: types of unequal nodes")
                return SlurmRefusal(
                    "step",
                    f"the job counts its GPUs by type, {kinds.count(kinds[0])} of a node to one, "
                    f"and srun asks for {gpus.count}",
                    "Name the type",
                )
    return None


def numbered(one: HeldNode) -> tuple[int, ...]:
    """The CPUs of a job on a node by number: the first free cores of each socket."""
    shape = one.shape
    found: list[int] = []
    for socket, count in enumerate(one.cores):
        first = socket * shape.cores_per_socket
        cores = [c for c in range(first, first + shape.cores_per_socket) if c not in shape.reserved]
        for core in cores[:count]:
            each = shape.threads  # scontrol counts them all, whatever CPUs= says
            found += range(core * each, (core + 1) * each)
    return tuple(found)


def refusal(request: SlurmRequest) -> SlurmRefusal | None:
    """Why Slurm refuses these options on any nodes whatever; None where it may not."""
    wants = check_conflicts(request) or wants_of(request, release_of(OLDEST))
    return wants if isinstance(wants, SlurmRefusal) else None


def _smaller(w: Wants, shape: NodeHardware) -> str:
    for ask in w.asks:
        here = len(shape.gpus_of(ask.kind))
        if max(ask.per_node, ask.per_task) > here:
            return f"At most {here} per node; more nodes give more"
    if w.tasks_per_gpu and not w.options.nodes_said:
        return "With --ntasks-per-gpu say --nodes=N: without it all tasks must fit one node"
    return f"A node here has {shape.cores} cores and {shape.gpus} GPUs"
