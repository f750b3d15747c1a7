"""The decision: a request and a shape of nodes in, what Slurm gives (or refuses) out.

Measured on Slurm 22.05.8 and 24.11.5. Where the two differ, releases from 23.02 on are taken to
do as 24.11 does: their change logs name the corrections.
"""

from __future__ import annotations

from dataclasses import replace

from podwright.slurm.requests._bind import tasks_of
from podwright.slurm.requests._options import OLDEST, Version
from podwright.slurm.requests._place import place
from podwright.slurm.requests._request import Request
from podwright.slurm.requests._values import Grant, NodeGrant, Refusal, Shape
from podwright.slurm.requests._wants import Wants, wants_of

MENDED: Version = (23, 2)
TASKS_ALONE: tuple[Version, Version] = ((22, 5), (23, 11))  # srun ignores its job's -c


def explain(request: Request, shape: Shape, version: Version = OLDEST) -> Grant | Refusal:
    """What an idle cluster of this shape gives for this request.

    For sbatch and salloc the tasks are those of a plain `srun program` inside the job.
    """
    kind = request.kind()
    if kind and shape.kinds and kind not in shape.kinds:
        return Refusal(
            "submit",
            f"no node has GPUs of type {kind}",
            "Types here: " + ", ".join(shape.kinds),
        )
    wants = wants_of(request, newer=version >= MENDED)
    if isinstance(wants, Refusal):
        return wants
    if not request.asks_for_gpus:
        return Refusal("submit", "nothing here asks for GPUs", "Add --gpus-per-node=N")
    refused = _never(wants, shape)
    if refused:
        return refused
    nodes = place(wants, shape)
    if nodes is None:
        return Refusal("submit", "no idle set of these nodes can hold it", _smaller(wants, shape))
    return _with_step(request, wants, shape, nodes, version)


def refusal(request: Request) -> Refusal | None:
    """Why Slurm refuses these options on any nodes whatever; None where it may not."""
    wants = wants_of(request)
    return wants if isinstance(wants, Refusal) else None


def _never(w: Wants, shape: Shape) -> Refusal | None:
    if w.min_nodes > shape.nodes:
        return Refusal(
            "waits",
            f"{w.min_nodes} nodes are asked for, there are {shape.nodes}",
            f"--nodes={shape.nodes}",
        )
    for count, what in ((w.per_node, "node"), (w.per_task, "task")):
        if count > shape.gpus:
            return Refusal(
                "submit",
                f"{count} GPUs for one {what}, but a node has {shape.gpus}",
                f"At most {shape.gpus} per node; more nodes give more",
            )
    cpus = max(w.cpus, (w.tasks or 0) * w.cpus_per_task)
    if cpus > shape.cores * shape.nodes:
        return Refusal(
            "waits", f"{cpus} cores are asked for, there are {shape.cores * shape.nodes}"
        )
    if w.per_job > shape.gpus * shape.nodes:
        return Refusal(
            "submit", f"{w.per_job} GPUs are asked for, there are {shape.gpus * shape.nodes}"
        )
    return None


def _smaller(w: Wants, shape: Shape) -> str:
    if w.tasks_per_gpu and not w.min_nodes:
        return "With --ntasks-per-gpu say --nodes=N: without it all tasks must fit one node"
    return f"A node here has {shape.cores} cores and {shape.gpus} GPUs"


def _with_step(
    request: Request, w: Wants, shape: Shape, nodes: list[NodeGrant], version: Version
) -> Grant | Refusal:
    notes: list[str] = []
    if request.step_per_node and request.command != "srun":
        asked = request.step_per_node.count
        if asked > w.per_node:
            return Refusal(
                "step",
                f"--gres grants {w.per_node} GPUs per node, and srun then asks for the {asked} "
                "of --gpus-per-node",
                "Keep one of --gres and --gpus-per-node",
            )
        nodes = [replace(node, gpus=node.gpus[:asked]) for node in nodes]
    per_step = _step_gpus(request, w)
    if per_step and per_step < len(nodes):
        return Refusal(
            "step",
            f"the job gets {len(nodes)} nodes for its cores, and srun asks for only {per_step} "
            "GPUs: it wants one on every node at least",
            f"--nodes={per_step}, or fewer tasks",
        )
    if _contradicts(request):
        notes.append(
            "these counts contradict each other, and releases of Slurm settle that differently: "
            "leave one out"
        )
    count = _step_tasks(request, w, nodes, version)
    held = sum(node.tasks for node in nodes)
    if count < held:
        notes.append(
            f"srun starts {count} of the {held} tasks that the job is sized for: say --ntasks"
        )
    alone = TASKS_ALONE[0] <= version < TASKS_ALONE[1]
    evenly = request.command != "srun" and w.cpus_per_task > 1 and alone
    counted = request.command != "srun" and not request.tasks_per_node
    if version >= MENDED and counted and count == _step_total(request):
        # As many tasks as GPUs: newer releases lay them over the nodes as the GPUs lie.
        given = [replace(node, tasks=len(node.gpus)) for node in nodes]
    else:
        given = _lay(nodes, count, evenly=evenly or bool(w.tasks_per_node))
    if per_step:
        given = _share(given, per_step)
    again = w.per_node and not (request.by_gres and request.command != "srun")
    if w.per_task and not again:
        given = [replace(n, gpus=n.gpus[: n.tasks * w.per_task]) for n in given]
    views = tasks_of(request, shape, given, mended=version >= MENDED)
    if sum(len(n.gpus) for n in given) < sum(len(n.gpus) for n in nodes):
        notes.append("the job holds more GPUs than its tasks are given")
    nodes = [replace(n, tasks=g.tasks) for n, g in zip(nodes, given, strict=True)]
    return Grant(tuple(nodes), tuple(views), tuple(notes))


def _step_total(request: Request) -> int:
    """GPUs of the whole job as --gpus says, 0 where it does not."""
    return request.per_job.count if request.per_job else 0


def _contradicts(request: Request) -> bool:
    """Whether tasks are counted twice, with two results."""
    said, each = request.tasks, request.tasks_per_node
    if said and each and request.min_nodes and said != each * request.min_nodes:
        return True
    if said and request.tasks_per_gpu:
        gpus = request.per_job or request.per_node
        nodes = 1 if request.per_job else request.min_nodes or 1
        return gpus is not None and said != gpus.count * nodes * request.tasks_per_gpu
    return False


def _step_gpus(request: Request, w: Wants) -> int:
    """GPUs that srun asks for in all, 0 where it asks by another count."""
    if request.per_job:
        return 0 if w.per_task else request.per_job.count
    if w.tasks_per_gpu and not w.per_node:
        return (w.step_tasks if request.command == "srun" else w.tasks or 0) // w.tasks_per_gpu
    return 0


def _share(nodes: list[NodeGrant], count: int) -> list[NodeGrant]:
    """A total shared over the nodes: the first take what they hold, one is left for each."""
    shared: list[NodeGrant] = []
    for n, node in enumerate(nodes):
        take = min(len(node.gpus), count - (len(nodes) - n - 1))
        shared.append(replace(node, gpus=node.gpus[:take]))
        count -= take
    return shared


def _step_tasks(request: Request, w: Wants, nodes: list[NodeGrant], version: Version) -> int:
    """How many tasks `srun` starts in the job."""
    if request.command != "srun":
        if version >= MENDED and request.tasks and not w.tasks_per_gpu:
            return max(request.tasks, len(nodes))
        if request.tasks_per_node or (request.tasks and w.tasks_per_node):
            return w.tasks_per_node * len(nodes)
        return w.tasks if w.tasks is not None else len(nodes)
    count = w.step_tasks
    if request.tasks is None and request.tasks_per_node is None:
        count = max(count, len(nodes))
    if w.tasks_per_gpu:
        gpus = w.per_node or _step_gpus(request, w)
        if w.per_node and version >= MENDED:
            gpus *= len(nodes)
        count = max(count, gpus * w.tasks_per_gpu)
    return count


def _lay(nodes: list[NodeGrant], count: int, *, evenly: bool) -> list[NodeGrant]:
    """Lay `count` tasks over the nodes in blocks; as the job is sized, where that fits."""
    held = [node.tasks for node in nodes]
    tasks = held
    if evenly or count < sum(held):
        share, more = divmod(count, len(nodes))
        tasks = [share + (n < more) for n in range(len(nodes))]
    elif count > sum(held):
        share, more = divmod(count - sum(held), len(nodes))
        tasks = [t + share + (n < more) for n, t in enumerate(held)]
    return [replace(node, tasks=t) for node, t in zip(nodes, tasks, strict=True)]
