"""`vipu-agent --gpus`: this machine's GPUs, and the guards around them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright import plugins

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from podwright.agents import SimulatedMachine
    from podwright.agents.gpu import GpuMachine, Guard
    from podwright.fabric import Family
    from podwright.hosts.gpus import Gpu

_GUARDS = ("fabric-manager", "imex", "cgroups", "files")


def guards(text: str) -> tuple[str, ...]:
    """What --guard names."""
    names = tuple(filter(None, text.split(",")))
    for name in names:
        if name not in _GUARDS and name not in plugins.names(plugins.GUARDS):
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_GUARDS)}")
    return names


def serve(arguments: argparse.Namespace, family: Family | None) -> GpuMachine:
    """The machine's GPUs behind the guards that were asked for. family: what they should be.

    Raises wire.Unavailable where there are none, wire.InvalidRequest for guards that cannot be.
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
        guards=lambda gpus: _made(arguments, gpus),
        may_reset=arguments.reset,
    )
    if machine is None:
        raise Unavailable(
            "this machine has no GPU that its driver tells of",
            asked="serve its GPUs",
            would_work="see that nvidia-smi or amd-smi lists them, and that nvidia-ml-py or amdsmi "
            "is installed",
        )
    return machine


def _made(arguments: argparse.Namespace, gpus: Sequence[Gpu]) -> list[Guard]:
    """The guards that were asked for, in the order in which they are set up."""
    from podwright.agents.gpu import Cgroups, FabricManager, FileGuard, Imex
    from podwright.cli._places import state_folder
    from podwright.errors import InvalidRequest
    from podwright.hosts import find_device_cgroups, find_program
    from podwright.hosts.gpus import divided

    made: list[Guard] = []
    if "fabric-manager" in arguments.guard:
        program = find_program(arguments.fmpm, os.environ)
        if program is None:
            raise InvalidRequest(
                f"there is no command {arguments.fmpm}",
                asked="--guard fabric-manager",
                would_work="--fmpm FILE, NVIDIA's Fabric-Manager-Client",
            )
        made.append(FabricManager([program], gpus, os.environ))
    if "imex" in arguments.guard:
        made.append(Imex(state_folder(system=os.geteuid() == 0) / "imex"))
    if "cgroups" in arguments.guard:
        groups = find_device_cgroups()
        if groups is None:
            raise InvalidRequest(
                "no cgroups are mounted on this machine",
                asked="--guard cgroups",
                would_work="--guard files",
            )
        guard = Cgroups(groups, [device.gpu for device in divided(gpus)])
        guard.try_out()
        made.append(guard)
    if "files" in arguments.guard:
        made.append(FileGuard())
    for name in arguments.guard:
        if name not in _GUARDS:
            made.append(plugins.load_function(plugins.GUARDS, name)(gpus))
    return made


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
