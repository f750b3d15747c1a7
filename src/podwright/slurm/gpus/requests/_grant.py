"""The GPUs that the tasks of a step get on each of its nodes, together."""

from __future__ import annotations

from podwright.slurm.gpus.requests._counts import HeldNode, Placed, Share
from podwright.slurm.gpus.requests._values import EVERY_SOCKET, SlurmRefusal
from podwright.slurm.site.releases import Release

_ANY = 1 << 16


def of_kind(share: Share, node: HeldNode) -> list[int]:
    """The node's GPUs that this share may come from."""
    kind = set(node.shape.gpus_of(share.kind))
    return [gpu for gpu in node.gpus if gpu in kind]


def short(shares: list[Share]) -> SlurmRefusal:
    """The answer to a step that wants more than the job has on a node."""
    return SlurmRefusal(
        "step",
        "srun asks for more GPUs of a node than the job has there",
        "Ask for GPUs in one way only, with --gpus-per-node or --gpus-per-task",
    )


def give(
    held: list[HeldNode],
    nodes: list[int],
    tasks: list[int],
    shares: list[Share],
    release: Release,
    *,
    whole: bool,
) -> list[Placed] | SlurmRefusal:
    """GPUs for the tasks of each node: beside the job's cores first where Slurm sees which.

    A job has a record of each type, in the order of its nodes, and a step takes its GPUs from one
    after the other. whole: of a job of whole nodes.
    """
    given: list[Placed] = []
    kinds = list(dict.fromkeys(kind for node in held for kind in node.shape.types))
    for at, (n, count) in enumerate(zip(nodes, tasks, strict=True)):
        taken: set[int] = set()
        for share in shares:
            if at == 0:
                share.found = 0
            need, most = _needed(share, count, len(nodes) - at, release)
            has = [gpu for gpu in of_kind(share, held[n]) if gpu not in taken]
            recorded = _recorded(held[n], kinds, whole=whole)
            has = [gpu for gpu in recorded if gpu in has]
            near = [g for g in has if _is_near(held, n, g)]
            got: list[int] = []
            for some in (near, has):
                if need == 0 and most <= 0:
                    break
                free = [g for g in some if g not in got]
                limit = len(free) if need is None else (most if most > 0 else need)
                new = free[:limit]
                got += new
                if need is not None:
                    most -= len(new) if most > 0 else 0
                    need = max(need - len(new), 0)
            if need:
                return short(shares)
            share.found += len(got)
            taken.update(got)
        given.append(Placed(n, count, tuple(sorted(taken))))
    return given


def _recorded(node: HeldNode, kinds: list[str], *, whole: bool) -> list[int]:
    """The job's GPUs of a node by its records. Which are in the record of a type follows from how
    many there are alone: they are dealt out by number, type by type (_job_alloc of gres_ctld.c)."""
    types, left = node.shape.types, sorted(node.gpus)
    if not any(types):
        return left
    if whole:
        return [gpu for kind in kinds for gpu in left if types[gpu] == kind]
    records: dict[str, list[int]] = {}
    for kind in dict.fromkeys(types):
        count = sum(types[gpu] == kind for gpu in node.gpus)
        records[kind], left = left[:count], left[count:]
    return [gpu for kind in kinds for gpu in records.get(kind, [])]


def _is_near(held: list[HeldNode], n: int, gpu: int) -> bool:
    """Slurm compares the cores of a GPU with those of the whole job, which fails on two nodes: no
    GPU is near there, for beside GPUs with Cores= those without have all (_cores_on_gres)."""
    socket = held[n].shape.socket_of(gpu)
    return len(held) == 1 and (socket == EVERY_SOCKET or bool(held[n].cores[socket]))


def _needed(share: Share, tasks: int, nodes_left: int, release: Release) -> tuple[int | None, int]:
    """(GPUs that the node must give, how many it may); None: all that the job has there."""
    if share.node:
        return share.node, 0
    if share.task:
        return share.task * tasks, 0
    if share.tasks_per_gpu:
        return tasks // share.tasks_per_gpu, 0
    if not share.job:
        return None, 0
    if nodes_left == 1:
        return max(share.job - share.found, 0), 0
    left = share.job - share.found - (nodes_left - 1)
    if release.bounds_step_gpus and share.found >= share.job:
        return 0, 0
    if release.bounds_step_gpus and left <= 0:
        left = share.job - share.found
    return 1, left if left >= 0 else _ANY  # an overflow, and no bound
