"""What a reader should know beside the grant: where it is not what the options seem to say."""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import HeldNode, Placed
from podwright.slurm.gpus.requests._gpu_bind import binding
from podwright.slurm.gpus.requests._request import SlurmRequest
from podwright.slurm.gpus.requests._spread import Laid
from podwright.slurm.gpus.requests._values import NodeHardware, TaskView

_LATER = {
    "begin": "it starts at the time of --begin, not before",
    "dependency": "it starts when the jobs of --dependency have ended as that says, not before",
    "array": "each task of the array is such a job by itself",
}


def notes(
    request: SlurmRequest,
    shape: NodeHardware,
    laid: list[Laid],
    held: list[HeldNode],
    placed: list[Placed],
    views: list[TaskView],
) -> list[str]:
    """Sentences, without their full stops."""
    return [
        text
        for text in (
            *(text for name, text in _LATER.items() if request.option(name)),
            _contradiction(request),
            _fewer_nodes(request, held),
            _fewer_tasks(laid, placed),
            _unused(request, held, placed),
            _without(views),
            _all_see_all(request, views),
            _closest(request, shape),
            _not_its_own(held, views),
        )
        if text
    ]


def _contradiction(request: SlurmRequest) -> str:
    if not _contradicts(request):
        return ""
    return (
        "these counts contradict each other, and releases of Slurm settle that differently: "
        "leave one out"
    )


def _fewer_nodes(request: SlurmRequest, held: list[HeldNode]) -> str:
    asked = request.min_nodes or 0
    if len(held) >= asked:
        return ""
    return f"Slurm gives {len(held)} of the {asked} nodes, for it has no task for the others"


def _fewer_tasks(laid: list[Laid], placed: list[Placed]) -> str:
    count, sized = sum(one.tasks for one in placed), sum(node.tasks for node in laid)
    if count >= sized:
        return ""
    return f"srun starts {count} of the {sized} tasks that the job is sized for: say --ntasks"


def _unused(request: SlurmRequest, held: list[HeldNode], placed: list[Placed]) -> str:
    if sum(len(one.gpus) for one in placed) >= sum(len(node.gpus) for node in held):
        return ""
    if request.exclusive:
        return "--exclusive: the job holds every GPU of its nodes, its tasks get those asked for"
    return "the job holds more GPUs than its tasks are given"


def _without(views: list[TaskView]) -> str:
    blind = sum(not task.sees for task in views)
    return f"{blind} of the {len(views)} tasks get no GPU" if 0 < blind < len(views) else ""


def _all_see_all(request: SlurmRequest, views: list[TaskView]) -> str:
    """Several tasks on a node that see the same GPUs: each program must choose."""
    if binding(request)[0] != "all":
        return ""
    seen: set[tuple[int, int]] = set()
    for task in views:
        mine = {(task.node, gpu) for gpu in task.sees}
        if mine & seen:
            return (
                "programs that take the first GPU that they see will all take the same one: "
                "choose by SLURM_LOCALID, or add --gpu-bind=single:1"
            )
        seen |= mine
    return ""


def _closest(request: SlurmRequest, shape: NodeHardware) -> str:
    if binding(request)[0] != "closest" or shape.affinity:
        return ""
    return (
        "closest binds nothing unless tasks are bound to cores (TaskPlugin=task/affinity): add "
        "--tasks bound to see that"
    )


def _not_its_own(held: list[HeldNode], views: list[TaskView]) -> str:
    """--gres-flags=allow-task-sharing with a binding, where devices are not confined."""
    if all(one.variable is None or set(one.sees) <= set(held[one.node].gpus) for one in views):
        return ""
    return (
        "CUDA_VISIBLE_DEVICES counts the job's GPUs from 0 here, yet programs count those of the "
        "node: they open GPUs that are not the job's. Leave out --gpu-bind, or set ConstrainDevices"
    )


def _contradicts(request: SlurmRequest) -> bool:
    """Whether tasks are counted twice, with two results."""
    said, each = request.tasks, request.tasks_per_node
    if said and each and request.min_nodes and said != each * request.min_nodes:
        return True
    if said and request.tasks_per_gpu:
        gpus = request.per_job or request.per_node
        nodes = 1 if request.per_job else request.min_nodes or 1
        return gpus is not None and said != gpus.count * nodes * request.tasks_per_gpu
    return False
