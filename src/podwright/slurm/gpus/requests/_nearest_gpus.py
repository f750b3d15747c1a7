"""The GPUs beside a task's CPUs: closest, single and per_task (gres.c).

With task/affinity Slurm looks at the CPUs of a task before it binds a GPU to it; without, every
task has all of the node.
"""

from __future__ import annotations

from podwright.slurm.gpus.requests._task_cores import Cpus, cpus_beside
from podwright.slurm.gpus.requests._values import NodeHardware


def gpus_near(gpus: list[int], cpus: Cpus, shape: NodeHardware) -> list[int]:
    """Those beside one of these CPUs, or beside none."""
    named = {gpu: cpus_beside(shape, gpu) for gpu in gpus}
    return [gpu for gpu, its in named.items() if its is None or its & cpus]


def single(
    gpus: list[int], tasks: list[Cpus], each: int, shape: NodeHardware, local: int
) -> list[int]:
    """One GPU for a task: since 23.02 each GPU takes `each` tasks, those beside it first."""
    if len(gpus) == 1:
        return gpus
    slots = [gpu for gpu in gpus for _ in range(each)]
    taken = None
    for cpus in tasks[: local + 1]:
        taken = _best(slots, cpus, shape)
        if taken is None:
            return [gpus[local % len(gpus)]]
        slots.remove(taken)
    return [] if taken is None else [taken]


def _best(slots: list[int], cpus: Cpus, shape: NodeHardware) -> int | None:
    """A GPU all of whose CPUs the task has, else one of which it has some, else the first."""
    some = None
    for gpu in slots:
        its = cpus_beside(shape, gpu)
        if its is not None and its <= cpus:
            return gpu
        if some is None and its is not None and its & cpus:
            some = gpu
    return some if some is not None else next(iter(slots), None)


def per_task(
    gpus: list[int], tasks: list[Cpus], count: int, shape: NodeHardware, local: int
) -> list[int]:
    """So many GPUs for a task, since 23.02: those left by the tasks before it, near ones first."""
    left, got = list(gpus), list[int]()
    for cpus in tasks[: local + 1]:
        beside = gpus_near(left, cpus, shape)
        got = [*beside, *(gpu for gpu in left if gpu not in beside)][:count]
        left = [gpu for gpu in left if gpu not in got]
    return sorted(got)
