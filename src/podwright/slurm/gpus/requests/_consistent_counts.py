"""Whether counts of GPUs, tasks and nodes agree; what is not given is filled in."""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import Ask, Wants
from podwright.slurm.gpus.requests._request import SHARED, SlurmRequest
from podwright.slurm.gpus.requests._values import SlurmRefusal
from podwright.slurm.site.releases import Release


def make_consistent(
    w: Wants, request: SlurmRequest, release: Release, *, server: bool
) -> SlurmRefusal | None:
    """Make the counts agree as Slurm does, in its order; a Refusal where they cannot."""
    sized = release.cpus_per_task_is_tres and request.cpus_per_task
    if (
        (request.per_task or sized or w.tasks_per_gpu)
        and w.tasks is None
        and w.min_nodes
        and w.min_nodes == w.max_nodes
    ):
        if w.tasks_per_gpu:
            w.tasks = w.min_nodes * w.tasks_per_gpu
        elif w.tasks_per_node:
            w.tasks = w.min_nodes * w.tasks_per_node
        elif not w.cpus_per_task:
            w.tasks = w.min_nodes
    w.asks = _asks(w, request)
    if {"gpu"} < {ask.name for ask in w.asks} and not forgets_shares(request):
        return SlurmRefusal(
            "submit", "GPUs and shares of GPUs do not go together", "Ask for one of them"
        )
    refused = _tasks_of_gpus(w)
    if refused:
        return refused
    if _only_said(w) and (release.needs_gpus_for_their_cpus or request.memory_per_gpu):
        return SlurmRefusal(
            "submit", "--cpus-per-gpu or --mem-per-gpu is said, and no GPU is asked for"
        )
    cpus = 0
    for ask in w.asks:
        refused = _agree_one(w, ask, release, server=server)
        if refused:
            return refused
        if release.counts_cpus_of_gpus_early and ask.name == "gpu":
            cpus += w.cpus_per_gpu * ask.total
    w.min_cpus = max(w.min_cpus, cpus)
    if server and w.asks and release.counts_cpus_of_tasks_late and w.cpus_per_task and w.tasks:
        w.min_cpus = max(w.min_cpus, w.cpus_per_task * w.tasks)
    return _merge(w)


def forgets_shares(request: SlurmRequest) -> bool:
    """Whether Slurm loses the error of shares beside GPUs: --cpus-per-gpu is merged with GPUs of a
    type that stand before the shares, and that is what it returns (gres_job_state_validate). It
    does not look at --gpu-freq then either."""
    typed = any(gpus.kind and way in ("job", "node") for way, gpus in request.asked)
    gres = request.other.get("gres", "")
    return bool(request.cpus_per_gpu and typed and not gres.startswith(SHARED))


def _only_said(w: Wants) -> bool:
    """Whether something is said of GPUs, and none is counted."""
    gpus = [ask for ask in w.asks if ask.name == "gpu"]
    said = any(ask.cpus_per_gpu or ask.memory_per_gpu for ask in gpus)
    return said and not any(ask.counts for ask in gpus)


def _asks(w: Wants, request: SlurmRequest) -> list[Ask]:
    found: dict[str, Ask] = {}
    if request.cpus_per_gpu:
        found[""] = Ask("", cpus_per_gpu=request.cpus_per_gpu)
    for way, gpus in request.asked:
        ask = found.setdefault(gpus.kind, Ask(gpus.kind))
        setattr(ask, f"per_{way}", gpus.count)
    if request.memory_per_gpu:
        found.setdefault("", Ask("")).memory_per_gpu = request.memory_per_gpu
    for way, name, gpus in request.shares:
        key = f"{name}:{gpus.kind}"
        setattr(found.setdefault(key, Ask(gpus.kind, name=name)), f"per_{way}", gpus.count)
    for ask in found.values():
        ask.tasks_per_gpu = w.tasks_per_gpu or 0
        nodes, sockets = w.min_nodes, w.sockets_per_node
        on_sockets = ask.per_socket
        if nodes and sockets:
            on_sockets *= nodes * sockets
        elif w.tasks and w.tasks_per_socket:
            on_sockets *= -(-w.tasks // w.tasks_per_socket)
        ask.total = max(
            ask.per_job, ask.per_node * (nodes or 1), on_sockets, ask.per_task * (w.tasks or 1)
        )
    return list(found.values())


def _tasks_of_gpus(w: Wants) -> SlurmRefusal | None:
    """--ntasks-per-gpu: tasks from GPUs where GPUs are said, else GPUs from tasks."""
    if not w.tasks_per_gpu:
        return None
    if any(ask.counts for ask in w.asks):
        w.tasks = sum(ask.total for ask in w.asks) * w.tasks_per_gpu
    elif w.tasks:
        gpus = w.tasks // w.tasks_per_gpu
        if gpus:
            ask = w.asks[0] if w.asks else Ask("")
            ask.per_job = ask.total = gpus
            ask.tasks_per_gpu = w.tasks_per_gpu
            w.asks = [ask]
    else:
        return SlurmRefusal(
            "submit",
            "--ntasks-per-gpu says how tasks share GPUs, but neither GPUs nor tasks are counted",
            "Add --gpus=N (tasks follow) or --ntasks=N (GPUs follow)",
        )
    return None


def _merge(w: Wants) -> SlurmRefusal | None:
    """GPUs of a type and of any type do not go together; what is said of any holds for all."""
    gpus = [ask for ask in w.asks if ask.name == "gpu"]
    typed = [ask for ask in gpus if ask.kind]
    if not typed or len(typed) == len(gpus):
        return None
    (any_kind,) = (ask for ask in gpus if not ask.kind)
    if any_kind.counts:
        return SlurmRefusal(
            "submit",
            f"some GPUs are asked for as {typed[0].kind}, and others of any type",
            f"Name the type {typed[0].kind} with each count, or with none",
        )
    for ask in typed:
        ask.cpus_per_gpu = ask.cpus_per_gpu or any_kind.cpus_per_gpu
        ask.memory_per_gpu = ask.memory_per_gpu or any_kind.memory_per_gpu
    w.asks = [ask for ask in w.asks if ask is not any_kind]
    return None


def _agree_one(w: Wants, a: Ask, release: Release, *, server: bool) -> SlurmRefusal | None:
    if a.per_job and max(a.per_node, a.per_task, a.per_socket) > a.per_job:
        return SlurmRefusal(
            "submit",
            f"--gpus={a.per_job} counts the whole job, and is less than what one node, socket "
            "or task shall have",
            f"--gpus={max(a.per_node, a.per_task, a.per_socket) * max(w.min_nodes or 1, 1)}, "
            "or leave --gpus out",
        )
    if a.per_node and max(a.per_task, a.per_socket) > a.per_node:
        return SlurmRefusal(
            "submit",
            "one task or socket shall have more GPUs than its whole node",
            f"--gpus-per-node={max(a.per_task, a.per_socket)} or more",
        )
    if a.per_socket and not w.sockets_per_node:
        return SlurmRefusal(
            "submit",
            "--gpus-per-socket needs --sockets-per-node",
            "Add --sockets-per-node=N, or ask with --gpus-per-node",
        )
    if a.cpus_per_gpu and w.cpus_per_task and not server:
        return SlurmRefusal("submit", "--cpus-per-gpu and --cpus-per-task exclude each other")
    return (
        _nodes_agree(w, a)
        or _sockets_agree(w, a)
        or _tasks_agree(w, a, release, server=server)
        or _enough(w, a)
    )


def _nodes_agree(w: Wants, a: Ask) -> SlurmRefusal | None:
    if not (a.per_job and a.per_node):
        return None
    if a.per_job % a.per_node:
        return SlurmRefusal(
            "submit",
            f"--gpus={a.per_job} is no multiple of the {a.per_node} GPUs per node",
            f"--gpus={-(-a.per_job // a.per_node) * a.per_node}, or leave one of them out",
        )
    nodes = a.per_job // a.per_node
    low, high = w.min_nodes, w.max_nodes
    if (low and nodes < low) or (high is not None and nodes > high):
        return SlurmRefusal(
            "submit",
            f"--gpus={a.per_job} at {a.per_node} per node are {nodes} nodes, but --nodes asks "
            f"for {low}",
            f"--nodes={nodes}, or --gpus={a.per_node * (low or 1)}",
        )
    w.min_nodes = w.max_nodes = nodes
    return None


def _sockets_agree(w: Wants, a: Ask) -> SlurmRefusal | None:
    if not (a.per_node and a.per_socket):
        return None
    if a.per_node % a.per_socket:
        return SlurmRefusal("submit", "GPUs per node are no multiple of GPUs per socket")
    sockets = a.per_node // a.per_socket
    if sockets != w.sockets_per_node:
        return SlurmRefusal(
            "submit",
            f"{a.per_node} GPUs per node at {a.per_socket} per socket are {sockets} sockets, "
            f"not {w.sockets_per_node}",
            f"--sockets-per-node={sockets}",
        )
    return None


def _tasks_agree(w: Wants, a: Ask, release: Release, *, server: bool) -> SlurmRefusal | None:
    if a.tasks_per_gpu and w.tasks is not None and w.tasks % a.tasks_per_gpu:
        return SlurmRefusal(
            "submit",
            f"--ntasks={w.tasks} is no multiple of --ntasks-per-gpu={a.tasks_per_gpu}",
            f"--ntasks={-(-w.tasks // a.tasks_per_gpu) * a.tasks_per_gpu}",
        )
    if not a.per_task:
        return None
    if a.per_job:
        if a.per_job % a.per_task:
            return SlurmRefusal(
                "submit",
                f"--gpus={a.per_job} is no multiple of --gpus-per-task={a.per_task}",
                f"--gpus={-(-a.per_job // a.per_task) * a.per_task}",
            )
        tasks = a.per_job // a.per_task
        if w.tasks is None:
            w.tasks = tasks
        elif w.tasks != tasks and server and release.corrects_gpus_by_tasks:
            a.per_job = a.total = w.tasks * a.per_task
        elif w.tasks != tasks:
            return SlurmRefusal(
                "submit",
                f"--gpus={a.per_job} at {a.per_task} per task are {tasks} tasks, not {w.tasks}",
                f"--ntasks={tasks}, or --gpus={w.tasks * a.per_task}",
            )
    elif w.tasks is not None:
        a.per_job = w.tasks * a.per_task
    else:
        return SlurmRefusal(
            "submit",
            "--gpus-per-task needs to know how many tasks",
            "Add --ntasks=N, or --nodes with --ntasks-per-node",
        )
    if a.per_node:
        if a.per_node % a.per_task:
            return SlurmRefusal(
                "submit",
                f"{a.per_node} GPUs per node are no multiple of --gpus-per-task={a.per_task}",
            )
        each = a.per_node // a.per_task
        w.tasks_per_node = w.tasks_per_node or each
        if w.tasks_per_node != each:
            return SlurmRefusal(
                "submit",
                f"{a.per_node} GPUs per node at {a.per_task} per task are {each} tasks a node, "
                f"not {w.tasks_per_node}",
                f"--ntasks-per-node={each}",
            )
    if a.per_socket:
        if a.per_socket % a.per_task:
            return SlurmRefusal("submit", "GPUs per socket are no multiple of --gpus-per-task")
        w.tasks_per_socket = w.tasks_per_socket or a.per_socket // a.per_task
    return None


def _enough(w: Wants, a: Ask) -> SlurmRefusal | None:
    if a.cpus_per_gpu and a.per_task:
        cpus = a.cpus_per_gpu * a.per_task
        w.cpus_per_task = w.cpus_per_task or cpus
        if w.cpus_per_task != cpus:
            return SlurmRefusal("submit", "--cpus-per-gpu contradicts the cores of a task")
    if not a.per_job:
        return None
    if w.min_nodes and a.per_job < w.min_nodes:
        return SlurmRefusal(
            "submit",
            f"{a.per_job} GPUs cannot be spread over {w.min_nodes} nodes: each gets one at least",
            f"--nodes={a.per_job}, or --gpus={w.min_nodes} or more",
        )
    if w.max_nodes and a.per_job < w.max_nodes:
        w.max_nodes = a.per_job
    return None
