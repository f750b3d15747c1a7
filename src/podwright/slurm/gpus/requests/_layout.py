"""The nodes of a step, and its tasks on each of them."""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import HeldNode, Placed, Share, Step, Wants
from podwright.slurm.gpus.requests._grant import give, of_kind, short
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._values import EVERY_SOCKET, UNLIMITED, SlurmRefusal
from podwright.slurm.site.releases import Release

#: Options that srun in the job reads as --threads-per-core
_SAYS_THREADS = {"hint", "threads-per-core", "extra-node-info"}


def lay(
    step: Step,
    request: SlurmRequest,
    w: Wants,
    held: list[HeldNode],
    shares: list[Share],
    release: Release,
    *,
    whole: bool,
    bound: bool,
) -> list[Placed] | SlurmRefusal:
    """Where the tasks start and what they get. whole: the job has whole nodes; bound: it takes only
    cores beside its GPUs (enforce-binding)."""
    refused = None if release.steps_share_grant else _more_than_job(step, w, shares)
    if refused:
        return refused
    each = _cpus_per_task(step, request, held, release)
    threads = (w.threads_per_core if _SAYS_THREADS & set(request.other) else 0) or 0
    free = [_free_cpus(node, threads, release, whole=whole) for node in held]
    usable = _usable(step, request, held, free, shares, each, release)
    if isinstance(usable, SlurmRefusal):
        return usable
    if step.tasks is None:
        chosen = sorted(usable)[: step.max_nodes]
        counts = [_of_threads(held[n], threads, whole=whole) for n in chosen]
        step.tasks = max(sum(count // each for count in counts), 1)
        step.cpus = step.tasks * each
    if not all(free) and len(usable) < step.min_nodes:
        return _cramped(step, held, "hangs")
    nodes = _nodes(step, held, usable, shares, release)
    if isinstance(nodes, SlurmRefusal):
        return nodes
    parts = any(held[n].cpus < held[n].shape.threads for n in nodes)
    if parts and w.threads_per_core == 1 and len(nodes) not in (1, step.tasks):
        return SlurmRefusal("unknown", "this is not modelled: tasks on parts of cores")
    tasks = _tasks(step, request, w, held, nodes, shares, each, release)
    if tasks is None or (release.steps_need_room and 0 in tasks):
        return SlurmRefusal("step", "srun finds no room for its tasks beside the GPUs")
    placed = give(held, nodes, tasks, shares, release, whole=whole)
    if isinstance(placed, SlurmRefusal):
        return placed
    if release.steps_need_room:
        return _too_many(step, w, held, placed, shares, each, bound=bound) or placed
    return _cramped(step, held) if _too_many_cpus(step, held, placed, each) else placed


def _of_threads(node: HeldNode, threads: int, *, whole: bool) -> int:
    """The CPUs of a node for which tasks are counted, with so many threads of each core."""
    cpus = sum(node.cores) * node.shape.cpus_per_core if whole else node.cpus
    return -(-cpus // node.shape.cpus_per_core) * threads if threads else node.cpus


def _free_cpus(node: HeldNode, threads: int, release: Release, *, whole: bool) -> int:
    """The CPUs of a node that are free for a step, by usable_cpu_cnt of stepmgr.c (26.05): those of
    its job are taken for threads, also where they are cores (CPUs=) or single threads (CR_CPU)."""
    if not (release.counts_free_threads and threads) or threads == node.shape.threads:
        return node.cpus
    cpus = sum(node.cores) * node.shape.cpus_per_core if whole else node.cpus
    return cpus // node.shape.threads * threads


def _more_than_job(step: Step, w: Wants, shares: list[Share]) -> SlurmRefusal | None:
    for share in shares:
        ask = next((a for a in w.asks if share.kind in ("", a.kind)), None)
        if ask is None:
            return SlurmRefusal("step", "srun asks for GPUs that the job did not ask for")
        if share.job and share.job < step.min_nodes:
            return SlurmRefusal(
                "step",
                f"the job gets {step.min_nodes} nodes for its cores, and srun asks for only "
                f"{share.job} GPUs: it wants one on every node at least",
                f"--nodes={share.job}, or fewer tasks",
            )
        for mine, jobs, what in (
            (share.job, ask.per_job, "in all"),
            (share.node, ask.per_node, "per node"),
            (share.socket, ask.per_socket, "per socket"),
            (share.task, ask.per_task, "per task"),
        ):
            if jobs and mine > jobs:
                return SlurmRefusal(
                    "step",
                    f"the job asks for {jobs} GPUs {what}, and srun then asks for {mine}",
                    "Keep one of --gres and --gpus-per-node",
                )
    return None


def _cpus_per_task(
    step: Step, request: SlurmRequest, held: list[HeldNode], release: Release
) -> int:
    """0 where Slurm cannot tell, and then counts a core as a task."""
    if release.counts_step_tasks_late and step.cpus_per_task:
        return step.cpus_per_task
    if (release.step_cpus_follow_gpus and request.cpus_per_gpu) or not step.tasks:
        return 0
    if not step.cpus or step.cpus % step.tasks:
        return 0
    each = max(step.cpus // step.tasks, 1)
    if any(each > node.cpus for node in held):
        return 0
    return each if sum(node.cpus // each for node in held) >= step.tasks else 0


def _count(share: Share, node: HeldNode) -> int:
    return len(of_kind(share, node))


def _room(share: Share, count: int, each: int, *, first: bool, nodes_left: int) -> int | None:
    """CPUs that this node's GPUs can serve: None for any number, 0 where they are too few."""
    if not count:
        return 0
    if first:
        share.found = 0
    least = max(share.node, share.socket, share.task, 1)
    if share.job > share.found and nodes_left == 1:
        least = max(least, share.job - share.found)
    if least > count:
        return 0
    share.found += count
    if share.cpus_per_gpu:
        return share.cpus_per_gpu * count
    return -(-count // share.task) * max(each, 1) if share.task else None


def _served_by_shares(request: SlurmRequest, node: HeldNode, each: int) -> int:
    """CPUs of the tasks for which this node has shares of GPUs (_step_test of gres_stepmgr.c)."""
    units = sum(count for _, count in node.shares)
    tasks = [-(-units // gpus.count) for way, _, gpus in request.shares if way == "task"]
    return min((count * max(each, 1) for count in tasks), default=UNLIMITED)


def _usable(
    step: Step,
    request: SlurmRequest,
    held: list[HeldNode],
    free: list[int],
    shares: list[Share],
    each: int,
    release: Release,
) -> dict[int, int] | SlurmRefusal:
    """CPUs of each node that the step may use; none of those with no free CPUs.

    Before 23.02 _step_test counts the GPUs of a step (gross_gres) without those of its first node,
    and the last one then seems to lack GPUs but for the steps that are there already.
    """
    usable: dict[int, int] = {}
    left, first, without = step.max_nodes, True, 0
    ahead = [0] * len(shares)
    for n, node in enumerate(held):
        cpus = free[n]
        if not cpus:
            continue
        cpus = min(cpus, _served_by_shares(request, node, each))
        last = left == 1 and not first and not release.steps_share_grant
        short_of = last and any(
            share.job > share.found and share.job - (share.found - began) > _count(share, node)
            for share, began in zip(shares, ahead, strict=True)
        )
        for share in shares:
            served = _room(share, _count(share, node), each, first=first, nodes_left=left)
            if served is not None:
                cpus = min(cpus, served)
            if not cpus:
                break
        if not cpus:
            without += 1
        if cpus // max(each, 1) == 0:
            if step.min_nodes == len(held):
                # With memory or GPUs ESLURM_NODES_BUSY, and no other error.
                busy = free[n] < node.cpus and (shares or (step.sized and node.memory))
                return _cramped(step, held, "hangs") if busy else short(shares)
            continue
        usable[n] = cpus
        step.blocked = step.blocked or short_of
        ahead = [share.found for share in shares] if first else ahead
        first = False
        left -= 0 if release.steps_share_grant else 1
    if shares and without:
        spare = len(held) - step.min_nodes if release.steps_share_grant else step.min_nodes - 1
        if without > spare:
            return short(shares)
    return usable


def _nodes(
    step: Step,
    held: list[HeldNode],
    usable: dict[int, int],
    shares: list[Share],
    release: Release,
) -> list[int] | SlurmRefusal:
    """The nodes of the step: as many as it may have, where it gave a range.

    _pick_step_nodes takes nodes that are left out for busy: it fails only where the step could
    have had all it may, else srun asks again for ever.
    """
    low, high = step.min_nodes, step.max_nodes
    some = list(usable)
    for share in shares:
        if release.prefers_rich_nodes and share.job:
            some = _richest(some, share, held, low)
    sizes = {node.cpus for node in held}
    if step.cpus and len(sizes) == 1:
        low = max(low, -(-step.cpus // sizes.pop()))
    if low > high:
        return _cramped(step, held)
    if len(some) < low:
        return SlurmRefusal("hangs", f"srun wants {low} nodes, and {len(some)} have room for it")
    want = min(high if high > low else low, len(some))
    picked = _with_cpus(some, usable, want, step.cpus)
    if picked is None:
        fails = high <= len(some) and not step.blocked
        return _cramped(step, held, "step" if fails else "hangs")
    have = sum(usable[n] for n in picked)
    for n in some:
        if have < step.cpus and n not in picked and len(picked) < high:
            picked.append(n)
            have += usable[n]
    if have < step.cpus:
        return _cramped(step, held)
    return sorted(picked)


def _cramped(step: Step, held: list[HeldNode], stage: str = "step") -> SlurmRefusal:
    return SlurmRefusal(
        stage,
        f"srun wants {step.cpus or len(held)} cores for its tasks, and the job has "
        f"{sum(node.cpus for node in held)}",
        "Say --ntasks, so that the job is sized for its tasks",
    )


def _richest(some: list[int], share: Share, held: list[HeldNode], low: int) -> list[int]:
    """The nodes that have an equal share first, until there are GPUs enough."""
    counts = {n: _count(share, held[n]) for n in some}
    limit, need = -(-share.job // low), share.job
    picked: list[int] = []
    while limit >= 0:
        below = -1
        for n in some:
            if n in picked:
                continue
            if counts[n] >= limit:
                picked.append(n)
                need -= counts[n]
            else:
                below = max(below, counts[n])
            if need <= 0 and len(picked) >= low:
                return sorted(picked)
        limit = below
    return some


def _with_cpus(some: list[int], usable: dict[int, int], want: int, cpus: int) -> list[int] | None:
    """`want` nodes with so many CPUs together: those with an equal share first."""
    target = -(-cpus // want)
    if cpus <= want:
        return some[:want]
    picked: list[int] = []
    for n in some:
        if usable[n] >= target:
            picked.append(n)
            cpus -= usable[n]
            if len(picked) == want:
                return picked if cpus <= 0 else None
    rest = sorted((n for n in some if n not in picked), key=lambda n: (-usable[n], n))
    rest = rest[: want - len(picked)]
    if len(picked) + len(rest) < want or sum(usable[n] for n in rest) < cpus:
        return None
    return picked + rest


def _tasks(
    step: Step,
    request: SlurmRequest,
    w: Wants,
    held: list[HeldNode],
    nodes: list[int],
    shares: list[Share],
    each: int,
    release: Release,
) -> list[int] | None:
    """Tasks of each node: while it has CPUs for them, and then again."""
    rooms: list[int] = []
    for at, n in enumerate(nodes):
        threads = held[n].shape.threads
        cpus, sized = held[n].cpus, max(each, 1)
        if w.threads_per_core == 1:
            cpus //= threads
            cpus = max(cpus, 1)  # left out by step_layout_create, it still gets its first task
        elif w.tasks_per_core == 1:
            sized = max(sized, w.threads_per_core or threads)
        cpus = min(cpus, _served_by_shares(request, held[n], each))
        for share in shares:
            count = _count(share, held[n])
            served = _room(share, count, each, first=at == 0, nodes_left=len(nodes) - at)
            cpus = cpus if served is None else min(cpus, served)
            if not cpus:
                return None
        fit = max(cpus // sized, 1)
        if step.tasks_per_node and not request.plane:
            fit = min(fit, step.tasks_per_node * sized)
        rooms.append(fit)
    tasks = step.tasks or 0
    if request.plane:
        return _in_planes(tasks, rooms, request.plane)
    return (_in_cycles if step.cyclic else _in_turn)(tasks, rooms)


def _in_planes(left: int, rooms: list[int], plane: int) -> list[int]:
    """--distribution=plane: so many tasks of each node at a time, but one on each first."""
    tasks, first, crowded = [0] * len(rooms), True, False
    for at in range(min(left, len(rooms))):
        tasks[at], left = 1, left - 1
    while left:
        space = False
        for at, fit in enumerate(rooms):
            for _ in range(int(first), plane):
                if left and (fit != tasks[at] or crowded):
                    tasks[at] += 1
                    left -= 1
                    space = space or tasks[at] < fit
        first = False
        crowded = crowded or not space
    return tasks


def _in_turn(left: int, rooms: list[int]) -> list[int]:
    tasks, turn, crowded = [0] * len(rooms), 0, False
    while left:
        space = False
        for at, fit in enumerate(rooms):
            if left and (turn < fit or crowded):
                tasks[at] += 1
                left -= 1
                space = space or turn + 1 < fit
        crowded = crowded or not space
        turn += 1
    return tasks


def _too_many_cpus(step: Step, held: list[HeldNode], placed: list[Placed], each: int) -> bool:
    """Whether a node has fewer CPUs than its tasks need (_pick_step_cores of step_mgr.c, 22.05)."""
    if step.cpus == sum(node.cpus for node in held):
        return False
    return any(
        one.tasks * max(each, 1) > held[one.node].cpus
        for one in placed
        if step.exact and one.tasks != held[one.node].shape.all_cpus
    )


def _in_cycles(left: int, rooms: list[int]) -> list[int]:
    """--distribution=cyclic: tasks without room go over all nodes alike (_task_layout_cyclic)."""
    more = -(-max(left - sum(rooms), 0) // len(rooms))
    tasks = [0] * len(rooms)
    while left:
        for at, fit in enumerate(rooms):
            if left and tasks[at] < fit + more:
                tasks[at] += 1
                left -= 1
    return tasks


def _too_many(
    step: Step,
    w: Wants,
    held: list[HeldNode],
    placed: list[Placed],
    shares: list[Share],
    each: int,
    *,
    bound: bool,
) -> SlurmRefusal | None:
    """A node with fewer cores than its tasks need (_step_alloc_lps of stepmgr.c): srun fails, and
    waits for ever where it only lacks those beside the GPUs. --overcommit: a core of each node."""
    per_core = step.tasks_per_core
    whole = step.cpus == sum(node.cpus for node in held) and not w.overcommit
    if whole and per_core in (0, w.threads_per_core):
        return None  # all cores of the job: they are not counted
    for one in placed:
        node, tasks = held[one.node], one.tasks
        cores = node.shape.cores
        threads = node.shape.cpus_per_core
        if threads > 1:
            threads = w.threads_per_core or threads
        every = not step.exact or tasks == cores
        if every and tasks <= cores * (per_core or threads):
            continue
        cpus = _cpus_of_tasks(step, w, node, one, shares, each)
        needed = -(-cpus // threads) if cpus else tasks
        if w.overcommit:
            needed = 1
        if needed > -(-node.cpus // threads):  # _pick_step_cores
            return _cramped(step, held)
        if bound and needed > _cores_beside(node, one):
            return _cramped(step, held, "hangs")
    return None


def _cores_beside(node: HeldNode, placed: Placed) -> int:
    """The cores of the job that sit beside the GPUs of its step (_gres_filter_avail_cores)."""
    gpus = placed.gpus or tuple(gpu for gpu, _ in node.shares)
    sockets = {node.shape.socket_of(gpu) for gpu in gpus}
    if not sockets or EVERY_SOCKET in sockets:
        return sum(node.cores)
    return sum(node.cores[socket] for socket in sockets)


def _cpus_of_tasks(
    step: Step, w: Wants, node: HeldNode, placed: Placed, shares: list[Share], each: int
) -> int:
    """CPUs of the tasks on a node, those of its GPUs where --cpus-per-gpu says so; with
    --ntasks-per-core those of whole cores. 0 where the CPUs of a task are not known."""
    tasks = placed.tasks
    by_gpus = max((share.cpus_per_gpu for share in shares), default=0) * len(placed.gpus)
    if by_gpus:
        by_gpus = max(by_gpus, tasks)
        each = by_gpus // tasks
    if step.tasks_per_core:
        least = (w.threads_per_core or node.shape.cpus_per_core) // step.tasks_per_core
        if least > 1 and each % least:
            each += least - each % least
            by_gpus = tasks * each
    return by_gpus or tasks * each
