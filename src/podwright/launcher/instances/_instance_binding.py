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
from podwright.launcher.options._core_placement import (
    CPUS_VARIABLE,
    NUMA_NODES_VARIABLE,
    near_memory_nodes,
    places,
)

_BIND_EXEC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bind_exec.py")


def bind(
    own_variables: Mapping[int, Mapping[str, str]],
    strategy: str,
    environ: Mapping[str, str],
    gpu_settings: Sequence[Any] = (),
) -> dict[int, Own]:
    """Return the bindings of this host's instances. own_variables: their own variables, by rank.

    strategy: the strategy of placement. gpu_settings: the number of GPUs of each instance, and
    which of them it sees, if they are Slurm's.
    """
    cores = read_cores(environ) if own_variables and strategy != "disabled" else None
    bindings: list[tuple[Mapping[str, str], str]] = [({}, "")] * len(own_variables)
    if gpu_settings and own_variables:
        from podwright.launcher.instances._divide_gpus import shares

        bindings = [
            *shares(len(own_variables), gpu_settings[0], gpu_settings[1], strategy, cores, environ)
        ]
    elif cores and cores.cores:
        placements = places(strategy, cores, len(own_variables))
        bindings = [
            ({}, write_list(placement.cpus) if placement.bound else "") for placement in placements
        ]
    binding_by_rank = {}
    for (rank, rank_variables), (gpu_variables, cpu_list) in zip(
        own_variables.items(), bindings, strict=True
    ):
        all_variables = {**rank_variables, **_binding_variables(cpu_list, cores), **gpu_variables}
        binding_by_rank[rank] = Own(all_variables, _binding_arguments(all_variables, environ))
    return binding_by_rank


def _binding_variables(cpu_list: str, cores: Cores | None) -> dict[str, str]:
    if not cpu_list or not cores:
        return {}
    node_list = write_list(near_memory_nodes(cores, read_list(cpu_list)))
    return {CPUS_VARIABLE: cpu_list, **({NUMA_NODES_VARIABLE: node_list} if node_list else {})}


def _binding_arguments(variables: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words in front of a program that bind it to the CPUs and memory of its
    variables.
    """
    cpu_list, node_list = variables.get(CPUS_VARIABLE, ""), variables.get(NUMA_NODES_VARIABLE, "")
    if not cpu_list:
        return ()
    path = None if node_list else find_program("taskset", environ)
    if path:  # a tenth of the cost of an interpreter
        return path, "-c", cpu_list
    return sys.executable, "-I", "-S", _BIND_EXEC, cpu_list, node_list
