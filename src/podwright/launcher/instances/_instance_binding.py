"""The binding of each instance of one host: its cores, the memory near them, and its GPUs.

Each host determines this for its own instances, as only the host knows what it has and may use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from podwright.hosts import Cores, find_program, read_cores, read_list, write_list
from podwright.launcher.instances._instance_wrapper import Own
from podwright.launcher.options._placement import CPUS_VARIABLE, NODES_VARIABLE, near_memory, places

_BIND_EXEC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bind_exec.py")


def bind(
    owns: Mapping[int, Mapping[str, str]],
    how: str,
    environ: Mapping[str, str],
    gpus: Sequence[Any] = (),
) -> dict[int, Own]:
    """Return the bindings of this host's instances. owns: their own variables, by rank.

    how: the strategy of placement. gpus: the number of GPUs of each instance, and which of them it
    sees, if they are Slurm's.
    """
    cores = read_cores(environ) if owns and how != "disabled" else None
    bindings: list[tuple[Mapping[str, str], str]] = [({}, "")] * len(owns)
    if gpus and owns:
        from podwright.launcher.instances._gpus import shares

        bindings = [*shares(len(owns), gpus[0], gpus[1], how, cores, environ)]
    elif cores and cores.cores:
        placed = places(how, cores, len(owns))
        bindings = [({}, write_list(place.cpus) if place.bound else "") for place in placed]
    out = {}
    for (rank, own), (variables, cpus) in zip(owns.items(), bindings, strict=True):
        all_variables = {**own, **_binding_variables(cpus, cores), **variables}
        out[rank] = Own(all_variables, _binding_words(all_variables, environ))
    return out


def _binding_variables(cpus: str, cores: Cores | None) -> dict[str, str]:
    if not cpus or not cores:
        return {}
    nodes = write_list(near_memory(cores, read_list(cpus)))
    return {CPUS_VARIABLE: cpus, **({NODES_VARIABLE: nodes} if nodes else {})}


def _binding_words(variables: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words in front of a program that bind it to the CPUs and memory of its
    variables.
    """
    cpus, nodes = variables.get(CPUS_VARIABLE, ""), variables.get(NODES_VARIABLE, "")
    if not cpus:
        return ()
    taskset = None if nodes else find_program("taskset", environ)
    if taskset:  # a tenth of the cost of an interpreter
        return taskset, "-c", cpus
    return sys.executable, "-I", "-S", _BIND_EXEC, cpus, nodes
