"""The agent that `vipu-agent` runs: its machine, and whom it believes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from podwright.agents._agent_server import Agent
from podwright.agents._replay_protection import Heard
from podwright.agents._shared_key_auth import WINDOW, Secret, machine_key, read_key
from podwright.agents._simulated_machine import SimulatedMachine
from podwright.agents._state_file import SavedMachine
from podwright.agents.command._agent_arguments import AgentArguments
from podwright.agents.command._machine_from_options import chosen_machine, state_file
from podwright.errors import InvalidRequest
from podwright.hosts import is_loopback
from podwright.hosts._state_folders import own_key

if TYPE_CHECKING:
    from podwright.agents.gpu import GpuMachine


def chosen_agent(arguments: AgentArguments) -> tuple[Agent, SimulatedMachine | GpuMachine, Path]:
    """Return the agent, its machine, and the file with the machine's state.

    Raises InvalidRequest where other machines reach it and its callers would not be checked, and
    what chosen_machine raises.
    """
    certs_folder = arguments.tls_certs
    if not is_loopback(arguments.host) and not arguments.agent_key and not certs_folder:
        raise InvalidRequest(
            f"{arguments.host} is reachable from other machines, and callers would not be checked",
            operation=f"listen on {arguments.host}",
            would_work="--agent-key FILE, with a key that the server has, too, or --tls-certs DIR",
        )
    machine = chosen_machine(arguments)
    machine_name = machine.machine.name
    state_path = state_file(arguments, machine_name)
    saved_machine = SavedMachine(machine, state_path)
    secret = None
    if arguments.agent_key or not certs_folder:
        agent_key = (
            read_key(arguments.agent_key)
            if arguments.agent_key
            else machine_key(own_key(system=arguments.system))
        )
        heard_messages = Heard(
            2 * WINDOW, state_path.with_name(state_path.name + ".heard"), now=time.time()
        )
        secret = Secret(agent_key, received_calls=heard_messages)
    agent = Agent(saved_machine, machine_name, secret=secret, certs_folder=certs_folder)
    return agent, machine, state_path
