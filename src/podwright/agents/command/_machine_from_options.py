"""The machine that `vipu-agent` serves according to its arguments, and the guards of its GPUs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.agents._simulated_machine import SimulatedMachine
from podwright.agents.command._agent_arguments import GUARDS, AgentArguments
from podwright.errors import InvalidRequest, Unavailable
from podwright.fabric import Family, Machine, family_named, family_names
from podwright.ground import plugins
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
    make_machine = plugins.load_function(plugins.DRIVERS, arguments.driver or "")
    if make_machine is None:
        driver_names = ", ".join(plugins.names(plugins.DRIVERS))
        raise InvalidRequest(
            f"there is no driver {arguments.driver!r}",
            operation="--driver",
            would_work=f"choose one of {driver_names}"
            if driver_names
            else "pip install a package that adds one",
        )
    family = _named_family(arguments.family) if arguments.family else None
    machine_name = arguments.machine or socket.gethostname()
    machine: GpuMachine = make_machine(
        Machine(machine_name, arguments.host, arguments.port), family
    )
    return machine


def _gpu_machine(arguments: AgentArguments) -> GpuMachine:
    """Return the machine's GPUs behind the requested guards.

    Raises wire.Unavailable when there are no GPUs, wire.InvalidRequest for guards that are
    impossible.
    """
    from podwright.agents.gpu import open_machine

    machine_name = arguments.machine or host_name()
    machine = open_machine(
        Machine(machine_name, arguments.host, arguments.port),
        os.environ,
        family=_named_family(arguments.family) if arguments.family else None,
        guards=lambda gpus: make_guards(arguments, gpus),
        may_reset=arguments.reset,
    )
    if machine is None:
        raise Unavailable(
            "no driver on this machine lists a GPU",
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
    machine_name = arguments.machine or host_name()
    if "fabric-manager" in arguments.guard:
        fabric_manager_client = find_program(arguments.fmpm, os.environ)
        if fabric_manager_client is None:
            raise InvalidRequest(
                f"there is no command {arguments.fmpm}",
                operation="--guard fabric-manager",
                would_work="--fmpm FILE, NVIDIA's Fabric-Manager-Client",
            )
        guard_folder = state_folder(system=arguments.system) / "fabric-manager"
        guards.append(
            fabric_manager_guard(
                [fabric_manager_client], gpus, guard_folder, os.environ, machine_name
            )
        )
    if "imex" in arguments.guard:
        guard_folder = state_folder(system=arguments.system) / "imex"
        guards.append(
            imex_guard([device.gpu for device in divided(gpus)], guard_folder, machine_name)
        )
    if "cgroups" in arguments.guard:
        device_cgroups = find_device_cgroups()
        if device_cgroups is None:
            raise InvalidRequest(
                "no cgroups are mounted on this machine",
                operation="--guard cgroups",
                would_work="--guard files",
            )
        guard = Cgroups(device_cgroups, [device.gpu for device in divided(gpus)])
        guard.check_supported()
        guards.append(guard)
    if "files" in arguments.guard:
        guards.append(FileGuard())
    for guard_name in arguments.guard:
        if guard_name not in GUARDS:
            guards.append(plugins.load_function(plugins.GUARDS, guard_name)(gpus))
    return guards


def _simulated(arguments: AgentArguments) -> SimulatedMachine:
    family = _named_family(arguments.family or "ipu")
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
        for operation in ("configure", "reset", "release"):
            machine.delay(operation, arguments.delay)
    return machine


def _named_family(family_name: str) -> Family:
    family = family_named(family_name)
    if family is None:
        raise InvalidRequest(
            f"there is no family {family_name!r}",
            would_work=f"choose one of {', '.join(family_names())}",
        )
    return family


def state_file(arguments: AgentArguments, machine_name: str) -> Path:
    """Return the file of what the agent of a machine must not forget."""
    if arguments.state:
        path = Path(arguments.state).absolute()
    else:
        path = state_folder(system=arguments.system) / f"agent-{machine_name}.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
