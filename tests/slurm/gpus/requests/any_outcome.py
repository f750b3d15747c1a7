"""What a request came to on a random site, as a line of text: told by explain-request, or seen."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from podwright.errors import PodwrightError
from podwright.slurm.gpus.requests import (
    Grant,
    SlurmCluster,
    SlurmRefusal,
    Texts,
    explain,
    parse_request,
    read_site,
)
from podwright.slurm.site.releases import Version, read_version

UNKNOWN = "unknown"
_GRES = re.compile(r"(gpu|shard|mps)[^(]*?:(\d+)\(([^)]*)\)")


def read_shown(shown: dict[str, str]) -> tuple[SlurmCluster, Version]:
    """A site and its release, out of what scontrol and its files showed."""
    texts = Texts(
        config=shown["config"],
        nodes=shown["nodes"],
        partitions=shown["partitions"],
        gres_conf=shown["gres.conf"],
        topology_conf=shown["topology.conf"],
    )
    version = read_version(shown["config"])
    assert version is not None
    return read_site(texts), version


def told(site: SlurmCluster, options: str, version: Version, command: str = "sbatch") -> str:
    """What explain-request says."""
    try:
        answer = explain(parse_request(shlex.split(options), command), site, version)
    except PodwrightError:
        return "submit"
    return answer.stage if isinstance(answer, SlurmRefusal) else _granted(answer)


def lone_told(site: SlurmCluster, options: str, version: Version, command: str = "srun") -> str:
    """The tasks of an srun that is no part of a job, or of one in salloc; empty where it fails or
    waits."""
    found = told(site, options, version, command)
    return found if found == UNKNOWN else found.rpartition("; ")[2] if "[" in found else ""


def lone_seen(tasks: Sequence[tuple[str, str, Sequence[int]]]) -> str:
    """The same of what a lab saw."""
    return " ".join(_task(*task) for task in tasks)


def _granted(answer: Grant) -> str:
    nodes = {
        node.name: _node(
            node.name, node.gpus, dict(enumerate(node.shards)), list(node.cpus), node.memory >> 20
        )
        for node in answer.nodes
    }
    tasks = [
        _task(
            answer.nodes[task.node].name,
            "unset" if task.variable is None else task.variable,
            task.cpus,
        )
        for task in answer.tasks
    ]
    return "; ".join([*(nodes[name] for name in sorted(nodes)), " ".join(tasks)])


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


def options_of(text: str) -> set[str]:
    """The names of the options in a request."""
    return set(re.findall(r"--([a-z-]+)", text))
