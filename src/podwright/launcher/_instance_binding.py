"""What each instance of one host gets of its own there: cores, the memory near them, GPUs.

Each host finds that out for its own instances, as only it knows what it has and may use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from podwright.hosts import Cores, find_program, read_cores, read_list, write_list
from podwright.launcher._instance_wrapper import Own
from podwright.launcher._placement import CPUS_VARIABLE, NODES_VARIABLE, near_memory, places

_BIND_EXEC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bind_exec.py")


def bind(
    owns: Mapping[int, Mapping[str, str]],
    how: str,
    environ: Mapping[str, str],
    gpus: Sequence[Any] = (),
) -> dict[int, Own]:
    """What each instance of this host gets. owns: its own variables, by its rank.

    how: the strategy of placement.
    gpus: how many GPUs each drives, and which of them it sees, where they are Slurm's.
    """
    cores = read_cores(environ) if owns and how != "disabled" else None
    found: list[tuple[Mapping[str, str], str]] = [({}, "")] * len(owns)
    if gpus and owns:
        from podwright.launcher._gpus import shares

        found = [*shares(len(owns), gpus[0], gpus[1], how, cores, environ)]
    elif cores and cores.cores:
        placed = places(how, cores, len(owns))
        found = [({}, write_list(place.cpus) if place.bound else "") for place in placed]
    out = {}
    for (rank, own), (variables, cpus) in zip(owns.items(), found, strict=True):
        whole = {**own, **_binding_variables(cpus, cores), **variables}
        out[rank] = Own(whole, _held(whole, environ))
    return out


def _binding_variables(cpus: str, cores: Cores | None) -> dict[str, str]:
    if not cpus or not cores:
        return {}
    nodes = write_list(near_memory(cores, read_list(cpus)))
    return {CPUS_VARIABLE: cpus, **({NODES_VARIABLE: nodes} if nodes else {})}


def _held(variables: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The words that hold an instance where its variables say it is."""
    cpus, nodes = variables.get(CPUS_VARIABLE, ""), variables.get(NODES_VARIABLE, "")
    if not cpus:
        return ()
    taskset = None if nodes else find_program("taskset", environ)
    if taskset:  # a tenth of what an interpreter costs
        return taskset, "-c", cpus
    return sys.executable, "-I", "-S", _BIND_EXEC, cpus, nodes
