"""`vipu-agent --gpus`: this machine's GPUs, and the guards around them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright import plugins
from podwright.cli.serve._agent_arguments import GUARDS, AgentArguments

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from podwright.agents import SimulatedMachine
    from podwright.agents.gpu import GpuMachine, Guard
    from podwright.fabric import Family
    from podwright.hosts.gpus import Gpu


def serve(arguments: AgentArguments, family: Family | None) -> GpuMachine:
    """Return the machine's GPUs behind the requested guards. family: the family that they must be.

    Raises wire.Unavailable when there are no GPUs, wire.InvalidRequest for guards that are
    impossible.
    """
    from podwright.agents.gpu import open_machine
    from podwright.errors import Unavailable
    from podwright.fabric import Machine
    from podwright.hosts import host_name

    name = arguments.machine or host_name()
    machine = open_machine(
        Machine(name, arguments.host, arguments.port),
        os.environ,
        family=family,
        guards=lambda gpus: _make_guards(arguments, gpus),
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


def _make_guards(arguments: AgentArguments, gpus: Sequence[Gpu]) -> list[Guard]:
    """Return the requested guards, in the order in which they are set up."""
    from podwright.agents.gpu import Cgroups, FileGuard, fabric_manager_guard, imex_guard
    from podwright.errors import InvalidRequest
    from podwright.hosts import find_device_cgroups, find_program, host_name
    from podwright.hosts._state_folders import state_folder
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


async def open_door(machine: SimulatedMachine | GpuMachine, ending: AsyncExitStack) -> None:
    """Let launches on this machine ask to be moved into the cgroups of their partitions."""
    from pathlib import Path

    from podwright.agents.gpu import CgroupSocket, GpuMachine
    from podwright.server import SocketPlace
    from podwright.wire import AGENT_SOCKET, AGENT_SOCKET_VARIABLE

    if not isinstance(machine, GpuMachine):
        return
    path = os.environ.get(AGENT_SOCKET_VARIABLE) or AGENT_SOCKET
    place = SocketPlace(Path(path), mode=0o666)
    place.take()
    ending.callback(place.release)
    door = CgroupSocket(machine)
    ending.push_async_callback(door.stop)
    await door.start(place.listen())
