"""What a request came to on a random site, as a line of text: by a lab, or by a twin of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from podwright.slurm.twin import Granted, SiteFiles, Submission, Task, Twin
from tests.slurm.twin.recorded import outcome_of

_GRES = re.compile(r"(gpu|shard|mps)[^(]*?:(\d+)\(([^)]*)\)")


def site_files(shown: dict[str, str]) -> SiteFiles:
    """A lab as scontrol and its files showed it."""
    return SiteFiles(
        config=shown["config"],
        nodes=shown["nodes"],
        partitions=shown["partitions"],
        gres_conf=shown["gres.conf"],
        topology_conf=shown["topology.conf"],
    )


def answered(twin: Twin, options: Sequence[str]) -> str:
    """What a twin answers to sbatch, with the tasks of a plain srun in the job."""
    request = Submission("sbatch", tuple(options))
    answer = twin.ask(request)
    if not isinstance(answer, Granted):
        return outcome_of(answer)
    return "; ".join([outcome_of(answer), tasks_line(twin.tasks(request, answer))])


def tasks_line(tasks: Sequence[Task]) -> str:
    """The tasks of a twin."""
    return " ".join(
        _task(task.node, "unset" if task.variable is None else task.variable, task.cpus)
        for task in tasks
    )


def lone_seen(tasks: Sequence[tuple[str, str, Sequence[int]]]) -> str:
    """The same of what a lab saw."""
    return " ".join(_task(*task) for task in tasks)


def _task(node: str, gpus: str, cpus: Sequence[int]) -> str:
    """A task that is bound to CPUs names them."""
    return f"{node}[{gpus}]" + (f"@{','.join(map(str, cpus))}" if cpus else "")


def _node(
    name: str, gpus: tuple[int, ...], shares: dict[int, int], cpus: list[int], memory: int
) -> str:
    shared = ",".join(f"{gpu}:{count}" for gpu, count in sorted(shares.items()) if count)
    return " ".join(
        (
            name,
            f"gpus={','.join(map(str, gpus))}",
            f"shares={shared}",
            f"cpus={','.join(map(str, cpus))}",
            f"mem={memory}",
        )
    )


def seen(outcome: dict[str, Any]) -> str:
    """What a lab saw, in the same words. A step that fails is that, whatever the job holds."""
    if outcome["stage"] != "runs":
        return str(outcome["stage"])
    nodes = []
    for name, held in sorted(outcome["nodes"].items()):
        gpus, shares = _held(held["gres"])
        nodes.append(_node(name, gpus, shares, held["cpus"], held["mem"]))
    return "; ".join([*nodes, lone_seen(outcome["tasks"])])


def _held(gres: str) -> tuple[tuple[int, ...], dict[int, int]]:
    """GPUs by number and shares by GPU of `gpu:a100:2(IDX:0-1),shard:2(2/4,0/4)`."""
    gpus: set[int] = set()
    shares: dict[int, int] = {}
    for name, count, which in _GRES.findall(gres or ""):
        if which.startswith("IDX:"):
            numbers = _numbers(which[4:])
            if name == "gpu":
                gpus |= set(numbers)
            else:
                shares.update(dict.fromkeys(numbers, int(count)))
        elif "/" in which:
            for gpu, part in enumerate(which.split(",")):
                if int(part.split("/")[0]):
                    shares[gpu] = int(part.split("/")[0])
    return tuple(sorted(gpus)), shares


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        if part and part != "N/A":
            low, _, high = part.partition("-")
            found += range(int(low), int(high or low) + 1)
    return found
