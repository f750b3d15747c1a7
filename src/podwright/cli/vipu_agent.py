"""`vipu-agent`: a process on each machine that carries out the server's orders on its devices.

Its options are our choice: those of V-IPU's agent are not public. Devices are simulated, or, with
--gpus, this machine's own GPUs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podwright._version import __version__
from podwright.agents.command._agent_arguments import AgentArguments
from podwright.cli.shared._arguments import Parser, complain, run

if TYPE_CHECKING:
    from contextlib import AsyncExitStack
    from pathlib import Path

    from podwright.agents import Agent, SimulatedMachine
    from podwright.agents.gpu import GpuMachine

_EXAMPLES = """\
examples:
  vipu-agent --machine ag1 --port 8081
  vipu-agent --machine ag1 --host 10.1.2.1 --agent-key /etc/podwright/agent.key
  vipu-agent --machine ag1 --host 10.1.2.1 --tls-certs ag1.vipu-certs
  vipu-agent --machine ag1 --server 10.0.0.1:8090    it shows in: vipu-admin discover agent
  vipu-agent --gpus --guard files --reset            this machine's GPUs, kept apart by their owner

Which devices belong to which partition is kept in a file: an agent that was killed and started
again goes on, and refuses what the killed one refused."""


def build_parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="vipu-agent", description="Serve the devices of one machine.", epilog=_EXAMPLES
    )
    AgentArguments.add_to(parser)
    parser.add_argument(
        "--version", action="version", version=f"vipu-agent (Podwright) {__version__}"
    )
    return parser


def parse(argv: Sequence[str] | None = None) -> AgentArguments:
    """Return the parsed arguments."""
    return AgentArguments(build_parser().parse_args(argv))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    return run(lambda: _main(argv), prog="vipu-agent")


def _main(argv: Sequence[str] | None) -> int:
    arguments = parse(argv)
    import asyncio
    import logging

    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(arguments.verbose, 2)]
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(message)s")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    asyncio.run(_serve(arguments))
    return 0


async def _serve(arguments: AgentArguments) -> None:
    from contextlib import AsyncExitStack

    from podwright.agents.command._agent_from_options import chosen_agent

    agent, machine, state = chosen_agent(arguments)
    async with AsyncExitStack() as ending:
        if "cgroups" in arguments.guard:
            await _open_door(machine, ending)
        await _await_stop(arguments, agent, machine, state)


async def _open_door(machine: SimulatedMachine | GpuMachine, ending: AsyncExitStack) -> None:
    """Let launches on this machine ask to be moved into the cgroups of their partitions."""
    from pathlib import Path

    from podwright.agents.gpu import CgroupSocket, GpuMachine
    from podwright.server import SocketPlace
    from podwright.wire import AGENT_SOCKET, AGENT_SOCKET_VARIABLE

    if not isinstance(machine, GpuMachine):
        return
    path = os.environ.get(AGENT_SOCKET_VARIABLE) or AGENT_SOCKET
    place = SocketPlace(Path(path), socket_mode=0o666)
    place.take()
    ending.callback(place.release)
    door = CgroupSocket(machine)
    ending.push_async_callback(door.stop)
    await door.start(place.listen())


async def _await_stop(
    arguments: AgentArguments,
    agent: Agent,
    machine: SimulatedMachine | GpuMachine,
    state: Path,
) -> None:
    import asyncio
    import signal
    from functools import partial

    from podwright.agents import figures
    from podwright.hosts import tell_ready
    from podwright.http import MetricsFront

    bound = await agent.start(arguments.host, arguments.port)
    complain(
        f"vipu-agent {__version__}: machine {machine.machine.name} "
        f"({len(machine.devices)} {machine.family.device_noun}s"
        f"{', SIMULATED' if _is_simulated(machine) else ''}) on "
        f"{arguments.host}:{bound}, kept in {state}"
    )
    front = MetricsFront(partial(figures, machine, machine.machine.name, agent.calls))
    if arguments.http_port is not None:
        address = await front.open(arguments.http_host, arguments.http_port)
        complain(f"figures at http://{arguments.http_host}:{address}/metrics")
    tell_ready()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    announcing = asyncio.create_task(
        _announce(arguments.server, machine, bound, str(arguments.tls_certs or ""))
    )
    await stop.wait()
    announcing.cancel()
    await front.stop()
    await agent.stop()


async def _announce(
    server: str | None, machine: SimulatedMachine | GpuMachine, bound: int, certs: str
) -> None:
    """Announce the agent to the server every few seconds. A failure changes nothing on this
    machine.
    """
    import asyncio
    import logging

    if not server:
        return
    from podwright.client import Client, Credentials, GrpcTransport, parse_addresses
    from podwright.errors import PodwrightError
    from podwright.wire import Announcement

    announcement = Announcement(name=machine.machine.name, host=machine.machine.host, port=bound)
    address = parse_addresses(server, source="--server")[0]
    credentials = Credentials(certs=certs)
    client = Client(GrpcTransport(address.host, address.port, credentials=credentials))
    log = logging.getLogger("podwright.agent")
    while True:
        try:
            await asyncio.to_thread(client.call, "AnnounceAgent", announcement, timeout=5)
        except PodwrightError as error:
            log.info("announcing: %s", error.message)
        except Exception:  # whatever fails, the next announcement may succeed
            log.exception("announcing failed")
        await asyncio.sleep(5)


def _is_simulated(machine: SimulatedMachine | GpuMachine) -> bool:
    from podwright.agents import SimulatedMachine

    return isinstance(machine, SimulatedMachine) or machine.simulated


if __name__ == "__main__":
    sys.exit(main())
