"""What an srun makes of a job: on which nodes its tasks start, and which of the GPUs they get.

An srun inside a job reads the job's environment as options, and asks for GPUs again; where it asks
for none, it gets what the job asked for.
"""

from __future__ import annotations

from dataclasses import replace

from podwright.slurm.gpus.requests._counts import HeldNode, Placed, Share, Step, Wants
from podwright.slurm.gpus.requests._fill import CommandCounts, fill_srun, in_order
from podwright.slurm.gpus.requests._layout import lay
from podwright.slurm.gpus.requests._request import Gpus, SlurmRequest
from podwright.slurm.gpus.requests._values import SlurmRefusal
from podwright.slurm.site.releases import Release


def step_of(
    request: SlurmRequest, w: Wants, held: list[HeldNode], release: Release, *, whole: bool
) -> Step | SlurmRefusal:
    """What srun sends: for itself, or inside the job that sbatch or salloc got."""
    nodes, in_job = len(held), request.command != "srun"
    none = request.cpus_per_gpu and not request.asks_for_gpus and not whole
    if none and not release.needs_gpus_for_their_cpus:
        return SlurmRefusal("step", "srun asks for cores of GPUs, and the job has no GPU")
    both = in_job and request.tasks_per_gpu and request.cpus_per_task
    if both and release.srun_reads_tres_per_task:
        return SlurmRefusal(
            "step",
            "this Slurm's srun reads --cpus-per-task from its job as --tres-per-task, and refuses "
            "that beside --ntasks-per-gpu",
            "In the job: `unset SLURM_TRES_PER_TASK` before srun; or ask with --ntasks-per-node",
        )
    named = w.options.named
    others = set(named) - {one.name for one in held}
    if others and not in_job and named != tuple(sorted(named, key=in_order)):
        return SlurmRefusal(  # its text is unlike the job's (_pick_step_nodes of stepmgr.c)
            "step",
            f"srun asks its step for all nodes that it names, and the job has no {min(others)}",
            "Name the nodes in their order",
        )
    o = _inside(request, w, nodes, release) if in_job else _alone(w, nodes)
    sized = o.cpus_per_task if in_job else request.cpus_per_task
    tasks: int | None = o.tasks
    by_node = not o.counted and o.tasks_per_node
    if not o.said or (release.counts_tasks_at_server and by_node):
        most = min(nodes, o.max_nodes or nodes)
        each = (o.tasks_per_node or 0) * most
        if sized and not o.tasks_per_node:
            each = sum(node.cpus // sized for node in held)
            o.said = True
        late = release.counts_step_tasks_late and sized and not o.tasks_per_node
        tasks = None if late else max(each, most)
        o.said = o.said or bool(o.tasks_per_node)
    by_gpus = _cpus_of_gpus(request, o, tasks or 0, release) if request.cpus_per_gpu else None
    if sized:
        cpus = (tasks or 0) * sized
    elif by_gpus is not None:
        cpus = by_gpus
    elif o.said or request.tasks_per_gpu or in_job:
        cpus = tasks or 0
    else:
        cpus = sum(node.cpus for node in held)
    if w.overcommit:
        cpus = 0  # step_create of step_mgr.c does so: no node lacks CPUs then
    step = Step(
        tasks=tasks,
        min_nodes=min(nodes, o.min_nodes) if o.nodes_said else nodes,
        max_nodes=min(nodes, o.max_nodes or nodes),
        cpus=cpus,
        tasks_per_node=o.tasks_per_node,
        cpus_per_task=sized,
        exact=bool(
            (sized and not w.overcommit)
            or (release.step_cpus_follow_gpus and request.cpus_per_gpu)
            or _says_exact(request)
        ),
        asked=request.step_asked,
        tasks_per_core=(w.tasks_per_core or 0) if _counts_cores(in_job, release) else 0,
    )
    refused = _grow(step, request, release)
    step.cyclic = _cyclic(step, request)
    return refused or step


def _counts_cores(in_job: bool, release: Release) -> bool:
    """Whether slurmctld knows of a step's --ntasks-per-core: an srun in a job may not tell it."""
    return release.counts_step_cores and (release.srun_reads_tasks_per_core or not in_job)


def _says_exact(request: SlurmRequest) -> bool:
    """Whether an srun takes only the cores of its tasks, though its job has whole nodes."""
    whole = request.option("exclusive")
    alone = request.command == "srun"
    return alone and bool(
        request.option("exact") or (whole and whole.value.lower() in ("", "exclusive"))
    )


def _cyclic(step: Step, request: SlurmRequest) -> bool:
    """Whether tasks go over the nodes in turn: as --distribution says, else where srun itself knows
    of no more tasks than nodes (launch.c), though slurmctld may find more by --gres."""
    way = request.other.get("distribution", "").lower().partition(":")[0]
    return way == "cyclic" or (not way and 0 < (step.tasks or 0) <= step.min_nodes)


def _alone(w: Wants, nodes: int) -> CommandCounts:
    """The options of an srun that has got its job: of a range of nodes those that it got."""
    return replace(w.options, min_nodes=nodes, max_nodes=nodes)


def _inside(request: SlurmRequest, w: Wants, nodes: int, release: Release) -> CommandCounts:
    """The options that srun reads from its job's environment."""
    sent = _batch if request.command == "sbatch" else _shell
    tasks, each = sent(request, w, nodes, release)
    o = CommandCounts(
        tasks=tasks or 1,
        said=bool(tasks),
        counted=bool(tasks),
        min_nodes=nodes,
        max_nodes=nodes,
        nodes_said=True,
        tasks_per_node=each,
        cpus_per_task=None if release.srun_ignores_cpus_per_task else request.cpus_per_task,
    )
    fill_srun(o, release)
    return o


def _shell(
    request: SlurmRequest, w: Wants, nodes: int, release: Release
) -> tuple[int | None, int | None]:
    """Tasks and tasks per node in the environment that salloc makes: it fits them to the nodes."""
    tasks, each = w.sent_tasks, w.sent_tasks_per_node
    later = release.counts_tasks_at_server
    if each and (not later if w.options.said else tasks is None and later):
        tasks = nodes * each
    elif w.options.said and tasks is not None:
        tasks = max(tasks, nodes)
    return tasks, each


def _batch(
    request: SlurmRequest, w: Wants, nodes: int, release: Release
) -> tuple[int | None, int | None]:
    """The same in a batch script: as they were asked for."""
    tasks, each = w.sent_tasks, request.tasks_per_node
    if w.options.said and not release.counts_tasks_at_server:
        tasks = w.options.tasks
    elif request.per_node and request.per_task and w.tasks_per_node and not w.options.said:
        tasks = nodes * w.tasks_per_node  # as the GPUs of a node and of a task say
    if tasks is None:
        tasks = nodes * each if each else w.tasks
    return tasks, each


def _cpus_of_gpus(
    request: SlurmRequest, o: CommandCounts, tasks: int, release: Release
) -> int | None:
    each = request.cpus_per_gpu or 0
    own = dict(request.step_asked)
    if not release.step_cpus_follow_gpus:
        return tasks * own["task"].count * each if "task" in own else None
    if "job" in own:
        return own["job"].count * each
    if "node" in own and not request.by_gres:
        return o.min_nodes * own["node"].count * each
    if "task" in own:
        return tasks * own["task"].count * each
    if "node" in own:
        return o.min_nodes * own["node"].count * each
    return 0


def _grow(step: Step, request: SlurmRequest, release: Release) -> SlurmRefusal | None:
    """--ntasks-per-gpu: more tasks where there are more GPUs."""
    each = request.tasks_per_gpu
    if not each:
        return None
    shares = shares_of(step.asked)
    if step.tasks is None:
        if shares:
            return None
        return SlurmRefusal(
            "step",
            "with --cpus-per-task srun leaves its tasks to be counted later, and --ntasks-per-gpu "
            "needs them now",
            "Add --ntasks=N",
        )
    if not shares:
        if step.tasks % each:
            return SlurmRefusal(
                "step",
                f"srun starts {step.tasks} tasks, which is no multiple of the {each} per GPU",
                f"--ntasks={-(-step.tasks // each) * each}",
            )
        return None
    gpus = 0
    for share in shares:
        by_node = share.node * (step.min_nodes if release.step_gpus_of_all_nodes else 1)
        gpus += max(share.job, by_node, share.task * step.tasks)
    if step.tasks < gpus * each:
        cpus = step.cpus // step.tasks
        step.tasks = gpus * each
        step.cpus = max(step.cpus, step.tasks * cpus) if step.cpus else 0
    return None


def shares_of(asked: tuple[tuple[str, Gpus], ...]) -> list[Share]:
    """Counts of GPUs, by type."""
    found: dict[str, Share] = {}
    for way, gpus in asked:
        share = found.setdefault(gpus.kind, Share(gpus.kind))
        setattr(share, way, gpus.count)
    return list(found.values())


def _sized(
    p: Placed,
    step: Step,
    w: Wants,
    node: HeldNode,
    shares: list[Share],
    release: Release,
    *,
    every: bool,
) -> Placed:
    """With the CPUs of a task and the cores of the step on a node (_step_alloc_lps)."""
    cpus = step.cpus_per_task or 1
    by_gpus = max((share.cpus_per_gpu for share in shares), default=0) * len(p.gpus)
    if by_gpus:
        by_gpus = max(by_gpus, p.tasks)
        cpus = by_gpus // p.tasks
    threads = node.shape.cpus_per_core
    if threads > 1:
        threads = w.threads_per_core or threads
    least = threads // step.tasks_per_core if step.tasks_per_core else 0
    if least > 1 and cpus % least:  # cores that tasks do not share
        cpus += least - cpus % least
        by_gpus = p.tasks * cpus if by_gpus else 0
    if every:
        return replace(p, cpus=cpus)
    p = replace(p, floors=not release.counts_step_cores)
    if not step.exact or p.tasks == node.shape.cores:
        p = replace(p, recounts=not release.counts_step_cores)
        by_gpus = node.cpus * (1 if release.counts_step_cores else threads)
    return replace(p, cpus=cpus, cores=-(-(by_gpus or p.tasks * cpus) // threads))


def run_step(
    request: SlurmRequest,
    w: Wants,
    held: list[HeldNode],
    release: Release,
    *,
    whole: bool,
    bound: bool,
    sized: bool,
) -> list[Placed] | SlurmRefusal:
    """Where the tasks of a plain srun start and what they get; a Refusal where it fails.

    whole, bound, sized: of the job, which has whole nodes, or only cores beside its GPUs, or memory
    that somebody said.
    """
    step = step_of(request, w, held, release, whole=whole)
    if isinstance(step, SlurmRefusal):
        return step
    step.sized = sized
    asked = step.asked or request.asked
    if not step.asked:
        step.asked = asked
        refused = _grow(step, request, release)
        if refused:
            return refused
    shares = shares_of(asked)
    if not shares and request.tasks_per_gpu and step.tasks:
        gpus = step.tasks // request.tasks_per_gpu
        shares = [Share("", job=gpus, tasks_per_gpu=request.tasks_per_gpu)]
    if whole and request.cpus_per_gpu and not shares and not request.asks_for_gpus:
        shares = [Share("")]  # --cpus-per-gpu names GPUs without a count: all of the job
    for share in shares:
        share.cpus_per_gpu = (request.cpus_per_gpu or 0) if release.step_cpus_follow_gpus else 0
    placed = lay(step, request, w, held, shares, release, whole=whole, bound=bound)
    if isinstance(placed, SlurmRefusal):
        return placed
    every = step.cpus == sum(node.cpus for node in held) and not w.overcommit
    if release.counts_step_cores:
        every = every and step.tasks_per_core in (0, w.threads_per_core)
    placed = [
        replace(_sized(p, step, w, held[p.node], shares, release, every=every), cyclic=step.cyclic)
        for p in placed
    ]
    if not request.shares:
        return placed
    return [replace(p, gpus=tuple(g for g, _ in held[p.node].shares)) for p in placed]
