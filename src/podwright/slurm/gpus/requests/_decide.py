"""The decision: a request and a shape of nodes in, what Slurm gives (or refuses) out.

A model of what Slurm 22.05.8, 24.11.5 and 26.05.5 do, written from their sources and held against
them. What differs between releases is asked of `slurm.site.releases`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from podwright.slurm.gpus.requests._allot import Allotted, allot
from podwright.slurm.gpus.requests._counts import HeldNode, Wants
from podwright.slurm.gpus.requests._gpu_bind import tasks_of
from podwright.slurm.gpus.requests._notes import notes
from podwright.slurm.gpus.requests._request import SHARED, SlurmRequest, gres_names
from podwright.slurm.gpus.requests._request_details import RequestDetails, read_said
from podwright.slurm.gpus.requests._slurm_options import known
from podwright.slurm.gpus.requests._step import run_step
from podwright.slurm.gpus.requests._unsure import (
    unsure_job,
    unsure_nodes,
    unsure_step,
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

_BIND = re.compile(
    r"(verbose,)?(none|closest|single:[1-9]\d*|per_task:[1-9]\d*"
    r"|map(_gpu)?:[\dx*,a-fA-F]+|mask(_gpu)?:[\dxa-fA-F*,]+)$"
)


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
    refused = _options(request, said, release) or _conflict(request)
    if refused:
        return refused
    partitions = _partitions(said, site)
    if isinstance(partitions, SlurmRefusal):
        return partitions
    late = _times(said, partitions)
    if late:
        return late
    unsure = unsure_job(request, said, site, partitions, release)
    if unsure:
        return SlurmRefusal("unknown", f"this is not modelled: {unsure}")
    least = min(partition.min_nodes for partition in partitions)
    wants = wants_of(request, release, said=said, least_nodes=least)
    if isinstance(wants, SlurmRefusal):
        return wants
    tasks = wants.tasks
    if request.tasks is None and request.tasks_per_node and least > 1:
        tasks = (request.min_nodes or 1) * request.tasks_per_node
    ranged = (request.max_nodes or 0) >= least
    fewer = tasks and tasks < max(wants.min_nodes or 1, least if ranged else 1)
    if fewer and release.refuses_fewer_tasks_than_nodes:
        return SlurmRefusal("submit", f"{tasks} tasks are fewer than {wants.min_nodes} nodes")
    refused = (
        _names(wants, said, site, release, request.max_nodes)
        or _gres(request, said, site)
        or _unknown(said, site, partitions)
        or _elsewhere(said, site, partitions)
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
    return _granted(request, wants, site, allotted, release, named=isinstance(where, SlurmCluster))


def _tried(
    wants: Wants,
    said: RequestDetails,
    site: SlurmCluster,
    partitions: list[SlurmPartition],
    release: Release,
) -> Allotted | SlurmRefusal:
    """What the partitions say together: the last one decides where none takes the job."""
    start: Allotted | None = None
    verdict, why, until = "limit", "", ""
    limited = False
    for partition in partitions:
        tried = allot(wants, said, site.of(partition), partition, release)
        if isinstance(tried, SlurmRefusal):
            return tried
        limited = limited or tried.verdict == "limit"
        start = start or tried.start
        if tried.verdict in ("limit", "skips") and site.enforce == "ALL":
            return SlurmRefusal("submit", tried.reason)
        if verdict == "limit" and tried.verdict != "skips":
            verdict, why, until = tried.verdict, tried.reason, tried.until
        elif tried.verdict == "takes":
            verdict = "takes"
        why = why or tried.reason
    exclusive = len({partition.share == 0 for partition in partitions}) > 1
    if start is not None and exclusive and not release.judges_partitions_apart:
        # whole nodes in all of them, where the exclusive one was tried before the job started
        return SlurmRefusal("unknown", "not modelled: an exclusive partition beside another")
    if verdict == "takes" and start is not None:
        return start
    shut = len(partitions) > 1 and not all(one.up for one in partitions)
    if start is None and shut and release.keeps_jobs_of_down_partitions:
        return SlurmRefusal("unknown", "this is not modelled: one of several partitions is down")
    several = len(set(said.partitions)) > 1  # before those that take no jobs were left out
    limited = limited or not all(one.up for one in partitions)
    if limited and several and not release.judges_partitions_apart:
        return SlurmRefusal("unknown", "not modelled: one of several partitions has a limit")
    if said.switches and verdict == "takes" and wants.max_nodes not in (0, wants.min_nodes):
        return SlurmRefusal("unknown", "not modelled: --switches with a range of nodes")
    never = verdict == "never" and not said.held  # no node is looked at before it is released
    odd = several or len(said.named) > 1
    if never and said.spread and release.spreads_over_weights and odd:
        return SlurmRefusal("unknown", "not modelled: --spread-job over nodes that never do")
    refused = never or (verdict == "limit" and site.enforce != "NO")
    return SlurmRefusal("submit" if refused else "waits", why, until="" if refused else until)


def _granted(
    request: SlurmRequest,
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
    sized = request.cpus_per_task if request.command != "srun" else None
    if sized and allotted.cpus != sized and release.limits_cpus_of_tasks:
        return SlurmRefusal(
            "step",
            f"MaxMemPerCPU makes {allotted.cpus} CPUs of a task, and srun in the job refuses that "
            f"beside the {sized} that were asked for",
            f"--cpus-per-task={allotted.cpus}, or less memory",
        )
    unsure = unsure_step(request, held, release)
    if allotted.whole and request.shares:
        unsure = "shares of GPUs in a job of whole nodes"
    if unsure:
        return SlurmRefusal("unknown", f"this is not modelled: {unsure}")
    if release.steps_follow_job_cores and "CR_ONE_TASK_PER_CORE" in site.select:
        wants = replace(wants, tasks_per_core=wants.tasks_per_core or 1)
    placed = run_step(request, wants, held, release)
    if isinstance(placed, SlurmRefusal):
        if wants.overcommit:
            return SlurmRefusal(
                "unknown", "this is not modelled: which steps --overcommit lets start"
            )
        if request.option("ntasks-per-socket") and not release.steps_need_room:
            return SlurmRefusal("unknown", "this is not modelled: a step with --ntasks-per-socket")
        if placed.stage == "hangs" and request.command != "srun":
            return SlurmRefusal("unknown", "this is not modelled: a step that fits its job badly")
        return placed
    if allotted.whole:
        unsure = unsure_whole(request, wants.threads_per_core, held, placed)
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
    ignored = release.srun_ignores_cpus_per_task and request.command != "srun"
    cpus = 1 if ignored else request.cpus_per_task or 1
    views = tasks_of(request, held, placed, cpus, release)
    if site.hidden_shares & {name for _, name, _ in request.shares}:
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
    for way, gpus in request.asked if request.command != "srun" else ():
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


def _options(request: SlurmRequest, said: RequestDetails, release: Release) -> SlurmRefusal | None:
    """Options that this release does not know, or that exclude each other."""
    table = known(request.command)
    for given in request.given:
        option = table.get(given.name)
        if option and not option.since <= release.version < option.until:
            return SlurmRefusal(
                "submit",
                f"{request.command} of Slurm {release} has no --{given.name}",
            )
    memory = [n for n in ("mem", "mem-per-cpu", "mem-per-gpu") if request.option(n)]
    if len(memory) > 1:
        return SlurmRefusal("submit", f"--{memory[0]} and --{memory[1]} exclude each other")
    misspelt = request.bind[:1].lower() == "c" and not _BIND.match(request.bind)
    if misspelt and not release.binds_by_short_names:  # sbatch looked at the first letter alone
        return SlurmRefusal("unknown", f"not modelled: --gpu-bind={request.bind}")
    if request.min_nodes == 0:
        late = release.counts_tasks_at_server and (request.tasks or request.max_nodes)
        return SlurmRefusal("unknown" if late else "submit", "--nodes=0 is no count of nodes")
    way = request.bind.removeprefix("verbose,").partition(":")[0]
    if way in ("map", "mask") and not release.binds_by_short_names:
        return SlurmRefusal("submit", f"this release has no --gpu-bind={way}", f"{way}_gpu:…")
    if said.core_spec is not None and said.thread_spec is not None:
        return SlurmRefusal("submit", "--core-spec and --thread-spec exclude each other")
    hint = request.other.get("hint", "")
    beside = ("ntasks-per-core", "threads-per-core", "extra-node-info", "cpu-bind")
    alone = not any(request.option(name) for name in beside)  # else the hint is ignored
    taken = alone and hint in ("memory_bound", "nomultithread")
    if request.per_socket and taken and not release.sockets_override_hint:
        return SlurmRefusal("submit", f"--hint={hint} takes back --sockets-per-node here")
    refused = (
        _flags(request, said, release)
        or _plane(request, said)
        or _arbitrary(said)
        or _segments(request, said)
    )
    if refused is None and release.checks_option_conflicts:
        return _option_conflicts(request, said)
    return refused


def _flags(request: SlurmRequest, said: RequestDetails, release: Release) -> SlurmRefusal | None:
    """--gres-flags that exclude each other, or that are for srun alone."""
    both = {"disable-binding", "enforce-binding"} <= said.flags
    if both and release.checks_option_conflicts:
        return SlurmRefusal("submit", "disable-binding and enforce-binding exclude each other")
    if {"one-task-per-sharing", "multiple-tasks-per-sharing"} <= said.flags:
        return SlurmRefusal("submit", "one and multiple tasks per sharing exclude each other")
    if request.shares and request.option("gpu-freq"):
        return SlurmRefusal(
            "submit", "--gpu-freq is for whole GPUs, and shares of them are asked for"
        )
    if "allow-task-sharing" in said.flags and request.command != "srun":
        return SlurmRefusal("submit", "--gres-flags=allow-task-sharing is for srun alone")
    return None


def _segments(request: SlurmRequest, said: RequestDetails) -> SlurmRefusal | None:
    """--segment that does not divide the nodes."""
    nodes = request.min_nodes or 0
    if said.segment and nodes > said.segment and nodes % said.segment:
        return SlurmRefusal("submit", f"{nodes} nodes are no multiple of --segment={said.segment}")
    return None


def _times(said: RequestDetails, partitions: list[SlurmPartition]) -> SlurmRefusal | None:
    """--time-min beyond the time of the job."""
    if said.time_min is None or not partitions:
        return None
    time = said.time if said.time is not None else partitions[0].default_time
    if time is None:
        time = partitions[0].max_time
    if said.time_min > time:
        return SlurmRefusal("submit", f"--time-min is {said.time_min} minutes, the job has {time}")
    return None


def _arbitrary(said: RequestDetails) -> SlurmRefusal | None:
    """Tasks in the order of a list of nodes, which must be there."""
    if said.first != "arbitrary":
        return None
    if said.named:
        return SlurmRefusal("unknown", "this is not modelled: --distribution=arbitrary")
    return SlurmRefusal(
        "submit",
        "--distribution=arbitrary goes by a list of nodes, and there is none",
        "--nodelist=..., or SLURM_HOSTFILE in the environment",
    )


def _plane(request: SlurmRequest, said: RequestDetails) -> SlurmRefusal | None:
    """A plane that leaves nodes without a task, as the commands check it."""
    nodes, tasks = request.min_nodes or (len(said.named) or 1), request.tasks or 1
    if not said.plane or request.command == "srun":
        return None
    if tasks // said.plane < nodes and (nodes - 1) * said.plane >= tasks:
        return SlurmRefusal(
            "submit",
            f"{tasks} tasks in planes of {said.plane} do not reach {nodes} nodes",
            f"--ntasks={(nodes - 1) * said.plane + 1} or more",
        )
    return None


def _option_conflicts(request: SlurmRequest, said: RequestDetails) -> SlurmRefusal | None:
    if request.option("exclusive") and request.option("oversubscribe"):
        return SlurmRefusal("submit", "--exclusive and --oversubscribe exclude each other")
    if request.option("tres-per-task") and request.tasks_per_gpu:
        return SlurmRefusal("submit", "--tres-per-task and --ntasks-per-gpu exclude each other")
    sized = "cpu=" in request.other.get("tres-per-task", "").replace("cpu:", "cpu=")
    if sized and request.option("cpus-per-task"):
        return SlurmRefusal(
            "submit", "--tres-per-task=cpu=… and --cpus-per-task exclude each other"
        )
    if request.cpus_per_task and request.cpus_per_gpu:
        return SlurmRefusal("submit", "--cpus-per-task and --cpus-per-gpu exclude each other")
    shared = any(way == "task" for way, _, _ in request.shares)
    if "one-task-per-sharing" in said.flags and not shared:
        return SlurmRefusal(
            "submit", "--gres-flags=one-task-per-sharing needs shards in --tres-per-task"
        )
    if said.tasks_per_core and said.threads and said.threads < said.tasks_per_core:
        return SlurmRefusal("submit", "--ntasks-per-core is more than --threads-per-core")
    return None


def _names(
    w: Wants, said: RequestDetails, site: SlurmCluster, release: Release, most: int | None
) -> SlurmRefusal | None:
    """Nodes and GRES that there are not. most: nodes by --nodes."""
    there = {name for name, _ in site.nodes}
    for name in (*said.named, *said.excluded):
        if name not in there:
            return SlurmRefusal("submit", f"there is no node {name}")
    if set(w.options.named) & set(said.excluded):
        return SlurmRefusal("submit", "nodes are both asked for and excluded")
    wide = w.max_nodes and len(w.options.named) > w.max_nodes
    wide = wide or (most and len(said.named) > most)
    if wide and not release.nodelist_is_pool:
        return SlurmRefusal(
            "submit", f"{len(w.options.named)} nodes are named, --nodes allows fewer"
        )
    for ask in w.asks:
        kinds = {kind for shape in site.shapes for kind in (*shape.kinds, *shape.types) if kind}
        if ask.kind and kinds and ask.kind not in kinds:
            return SlurmRefusal(
                "submit",
                f"no node has GPUs of type {ask.kind}",
                "Types here: " + ", ".join(sorted(kinds)),
            )
    return None


def _elsewhere(
    said: RequestDetails, site: SlurmCluster, partitions: list[SlurmPartition]
) -> SlurmRefusal | None:
    """Named nodes of another partition, with EnforcePartLimits: even where it is down."""
    away = [one for one in partitions if one.nodes and not set(said.named) <= one.nodes]
    if away and (site.enforce == "ALL" or (site.enforce == "ANY" and len(away) == len(partitions))):
        return SlurmRefusal("submit", f"partition {away[0].name} lacks nodes that are named")
    return None


def _gres(request: SlurmRequest, said: RequestDetails, site: SlurmCluster) -> SlurmRefusal | None:
    """Generic resources that the site has not, or that are not modelled."""
    words = [request.other.get("gres", ""), *request.other.get("tres-per-task", "").split(",")]
    names = {
        name for word in words if not word.startswith(("cpu", "lic")) for name in gres_names(word)
    }
    for name in sorted(names - {"none"}):
        if site.gres_types and name not in site.gres_types:
            return SlurmRefusal("submit", f"the site has no GRES {name} (GresTypes)")
        if name not in ("gpu", *SHARED):
            return SlurmRefusal("unknown", f"this is not modelled: --gres={name}")
    one = "one-task-per-sharing" in said.flags
    if one and "MULTIPLE_SHARING_GRES_PJ" not in site.select:
        return SlurmRefusal(
            "submit",
            "--gres-flags=one-task-per-sharing needs SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ",
        )
    return None


def _unknown(
    said: RequestDetails, site: SlurmCluster, partitions: list[SlurmPartition]
) -> SlurmRefusal | None:
    """What decides here and is not modelled."""
    names = [*said.unmodelled, *site.unmodelled]
    names += [p.unmodelled for p in partitions if p.unmodelled]
    if site.core_spec_allowed and (said.core_spec is not None or said.thread_spec is not None):
        names.append("--core-spec where the site allows it")
    if said.segment and site.topology not in ("flat", "tree"):
        names.append("--segment")
    if not names:
        return None
    return SlurmRefusal("unknown", f"this is not modelled: {', '.join(dict.fromkeys(names))}")


def _partitions(said: RequestDetails, site: SlurmCluster) -> list[SlurmPartition] | SlurmRefusal:
    by_name = {p.name: p for p in site.partitions}
    if not said.partitions:
        one = by_name.get(site.default) or (site.partitions[0] if site.partitions else None)
        return _open([one]) if one else SlurmRefusal("submit", "there is no default partition")
    found = []
    for name in dict.fromkeys(said.partitions):
        if name not in by_name:
            if not site.default and by_name.keys() == {""}:
                return [by_name[""]]
            return SlurmRefusal(
                "submit", f"there is no partition {name}", "There are: " + ", ".join(by_name)
            )
        found.append(by_name[name])
    return _open(sorted(found, key=lambda p: -p.priority))


def _open(partitions: list[SlurmPartition]) -> list[SlurmPartition] | SlurmRefusal:
    """Those of them that jobs may be submitted to."""
    some = [one for one in partitions if one.accepts or one.unmodelled]
    if some:
        return some
    names = ", ".join(one.name for one in partitions)
    return SlurmRefusal("submit", f"{names} takes no jobs: it is drained or inactive")


def refusal(request: SlurmRequest) -> SlurmRefusal | None:
    """Why Slurm refuses these options on any nodes whatever; None where it may not."""
    wants = _conflict(request) or wants_of(request, release_of(OLDEST))
    return wants if isinstance(wants, SlurmRefusal) else None


def _conflict(request: SlurmRequest) -> SlurmRefusal | None:
    if request.bind and request.bind != "verbose" and not _BIND.match(request.bind):
        return SlurmRefusal(
            "submit",
            f"--gpu-bind={request.bind} is none of the ways to bind",
            "Write closest, single:N, per_task:N, map_gpu:… , mask_gpu:… or none",
        )
    if request.tasks_per_gpu:
        for name, given in (
            ("gpus-per-task", request.per_task),
            ("gpus-per-socket", request.per_socket),
            ("ntasks-per-node", request.tasks_per_node),
        ):
            if given:
                return SlurmRefusal(
                    "submit",
                    f"--ntasks-per-gpu and --{name} exclude each other",
                    f"Keep one of them; --ntasks-per-gpu with --gpus, or --{name} alone",
                )
    return None


def _smaller(w: Wants, shape: NodeHardware) -> str:
    for ask in w.asks:
        here = len(shape.gpus_of(ask.kind))
        if max(ask.per_node, ask.per_task) > here:
            return f"At most {here} per node; more nodes give more"
    if w.tasks_per_gpu and not w.options.nodes_said:
        return "With --ntasks-per-gpu say --nodes=N: without it all tasks must fit one node"
    return f"A node here has {shape.cores} cores and {shape.gpus} GPUs"
