"""The machine that `vipu-agent` serves according to its arguments, and the guards of its GPUs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from podwright import plugins
from podwright.agents._simulated import SimulatedMachine
from podwright.agents.command._agent_arguments import GUARDS, AgentArguments
from podwright.errors import InvalidRequest, Unavailable
from podwright.fabric import Family, Machine, family_named, family_names
from podwright.hosts import find_device_cgroups, find_program, host_name
from podwright.hosts._state_folders import state_folder

if TYPE_CHECKING:
    from podwright.agents.gpu import GpuMachine, Guard
    from podwright.hosts.gpus import Gpu


def chosen_machine(arguments: AgentArguments) -> SimulatedMachine | GpuMachine:
    """Return the machine: of a driver that a package adds, with GPUs, or simulated.

    Raises InvalidRequest, and Unavailable where there are no GPUs.
    """
    if arguments.driver:
        return added_machine(arguments)
    if arguments.gpus:
        return _gpu_machine(arguments)
    return _simulated(arguments)


def added_machine(arguments: AgentArguments) -> GpuMachine:
    """Return a machine whose driver another package adds, with the settings of our own machines."""
    make = plugins.load_function(plugins.DRIVERS, arguments.driver or "")
    if make is None:
        drivers = ", ".join(plugins.names(plugins.DRIVERS))
        raise InvalidRequest(
            f"there is no driver {arguments.driver!r}",
            operation="--driver",
            would_work=f"choose one of {drivers}"
            if drivers
            else "pip install a package that adds one",
        )
    family = _family(arguments.family) if arguments.family else None
    name = arguments.machine or socket.gethostname()
    machine: GpuMachine = make(Machine(name, arguments.host, arguments.port), family)
    return machine


def _gpu_machine(arguments: AgentArguments) -> GpuMachine:
    """Return the machine's GPUs behind the requested guards.

    Raises wire.Unavailable when there are no GPUs, wire.InvalidRequest for guards that are
    impossible.
    """
    from podwright.agents.gpu import open_machine

    name = arguments.machine or host_name()
    machine = open_machine(
        Machine(name, arguments.host, arguments.port),
        os.environ,
        family=_family(arguments.family) if arguments.family else None,
        guards=lambda gpus: make_guards(arguments, gpus),
        may_reset=arguments.reset,
    )
    if machine is None:
        raise Unavailable(
            "this machine has no GPU that its driver tells of",
            operation="serve its GPUs",
            would_work="see that nvidia-smi or amd-smi lists them, and that nvidia-ml-py or amdsmi "
            "is installed",
        )
    return machine


def make_guards(arguments: AgentArguments, gpus: Sequence[Gpu]) -> list[Guard]:
    """Return the requested guards, in the order in which they are set up."""
    from podwright.agents.gpu import Cgroups, FileGuard, fabric_manager_guard, imex_guard
    from podwright.hosts.gpus import divided

    guards: list[Guard] = []
    name = arguments.machine or host_name()
    if "fabric-manager" in arguments.guard:
        program = find_program(arguments.fmpm, os.environ)
        if program is None:
            raise InvalidRequest(
                f"there is no command {arguments.fmpm}",
                operation="--guard fabric-manager",
                would_work="--fmpm FILE, NVIDIA's Fabric-Manager-Client",
            )
        folder = state_folder(system=arguments.system) / "fabric-manager"
        guards.append(fabric_manager_guard([program], gpus, folder, os.environ, name))
    if "imex" in arguments.guard:
        folder = state_folder(system=arguments.system) / "imex"
        guards.append(imex_guard([device.gpu for device in divided(gpus)], folder, name))
    if "cgroups" in arguments.guard:
        groups = find_device_cgroups()
        if groups is None:
            raise InvalidRequest(
                "no cgroups are mounted on this machine",
                operation="--guard cgroups",
                would_work="--guard files",
            )
        guard = Cgroups(groups, [device.gpu for device in divided(gpus)])
        guard.try_out()
        guards.append(guard)
    if "files" in arguments.guard:
        guards.append(FileGuard())
    for added in arguments.guard:
        if added not in GUARDS:
            guards.append(plugins.load_function(plugins.GUARDS, added)(gpus))
    return guards


def _simulated(arguments: AgentArguments) -> SimulatedMachine:
    family = _family(arguments.family or "ipu")
    if arguments.devices:
        family = replace(family, devices_per_machine=arguments.devices)
    name = arguments.machine or socket.gethostname()
    machine = SimulatedMachine(
        Machine(name, arguments.host, arguments.port),
        family,
        serial=arguments.serial,
        links=dict(arguments.link) or None,
    )
    if arguments.delay:
        for kind in ("configure", "reset", "release"):
            machine.delay(kind, arguments.delay)
    return machine


def _family(name: str) -> Family:
    family = family_named(name)
    if family is None:
        raise InvalidRequest(
            f"there is no family {name!r}", would_work=f"choose one of {', '.join(family_names())}"
        )
    return family


def state_file(arguments: AgentArguments, name: str) -> Path:
    """Return the file of what the agent of a machine must not forget."""
    if arguments.state:
        path = Path(arguments.state).absolute()
    else:
        path = state_folder(system=arguments.system) / f"agent-{name}.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
