"""Assembles the parts of a controller, and manages the machines that administrators register.

These machines are taken over at the start, watched while the controller runs, and left at its end.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from podwright.agents import FabricDriver, FabricSite, RemoteMachine
from podwright.controller.administration import _allocations as allocations
from podwright.controller.administration._audit import SERVER, Audit
from podwright.controller.administration._privacy import Privacy, Visible
from podwright.controller.administration._users import Users
from podwright.controller.calls._agent_calls import let_go
from podwright.controller.calls._call_services import Services
from podwright.controller.hardware._discovery import Discovery
from podwright.controller.hardware._fabric_journal import StoredFabricJournal
from podwright.controller.hardware._heartbeats import Heartbeats, Sleep
from podwright.controller.hardware._registry import ConnectAgent, Registry
from podwright.controller.moves._launch_moves import LaunchMoves
from podwright.controller.queue._waiting import Waiting
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import META
from podwright.controller.state._request_ids import Requests
from podwright.store import Opened, Put


@dataclass(frozen=True)
class Machines:
    """How the controller finds the machines that an administrator registers.

    connect: makes an agent's driver. silence: seconds without an answer after which one is out
    of service. discovery: what agents announce. fabric: makes the driver of what joins
    devices of several machines.
    introduce: called with the server's name, which its store keeps, and the number of this start.
    administrators: common names that a certificate makes administrators of (see Users).
    starting: seconds in which an agent that is to be registered may come up.
    """

    connect: ConnectAgent = RemoteMachine
    introduce: Callable[[str, int], None] = lambda *_: None
    silence: float = 10.0
    discovery: Discovery | None = None
    administrators: frozenset[str] = frozenset()
    fabric: Callable[[FabricSite], FabricDriver] | None = None
    starting: float = 20.0


def make_services(
    state: ControllerState, version: str, machines: Machines, visible: Visible, sleep: Sleep
) -> Services:
    """The parts of a controller over its state. sleep: how heartbeats wait."""
    audit, users = Audit(state.journal, state.now, wall=state.wall), Users(machines.administrators)
    requests = Requests(state.journal.later, state.now, state.spawn)
    waiting, registry = Waiting(state, audit, requests), Registry(state, machines.connect)

    def record_event(action: str, about: str, owner: str, detail: str) -> None:
        audit.record_event(SERVER, action, about, owner=owner, detail=detail)

    state.record_event = record_event
    fabric_journal = StoredFabricJournal(state.journal)
    if machines.fabric is not None:
        site = FabricSite(fabric_journal, lambda machine: reported_attributes(state, machine))
        state.hardware.fabric = machines.fabric(site)
    state.hardware.patience = min(state.hardware.patience, machines.silence)
    return Services(
        version=version,
        state=state,
        requests=requests,
        waiting=waiting,
        moves=LaunchMoves(state, waiting.named),
        audit=audit,
        registry=registry,
        heartbeats=Heartbeats(state, registry, sleep, silence=machines.silence),
        users=users,
        discovery=machines.discovery or Discovery((), lambda _: ""),
        privacy=Privacy(state, visible, users.allocations_of),
        introduce=machines.introduce,
        starting=machines.starting,
        fabric_journal=fabric_journal,
    )


def reported_attributes(state: ControllerState, machine: str) -> Sequence[Mapping[str, str]]:
    """The attributes of a machine's devices, as its agent last reported them."""
    cluster = state.inventory.by_machine.get(machine)
    return cluster.attributes.get(machine, ()) if cluster is not None else ()


def load_machines(services: Services, opened: Opened) -> None:
    """Load machines and users from the store; partitions are loaded after them."""
    body = opened.records.get((META, "server"))
    name = msgspec.json.decode(body, type=str) if body else secrets.token_hex(8)
    if body is None:
        services.state.journal.later(Put(META, "server", msgspec.json.encode(name)))
    services.introduce(name, opened.epoch)
    services.fabric_journal.load(opened)
    services.registry.load(opened.records)
    allocations.load(services.state, opened.records)
    services.users.load(opened.records)


def watch_machines(services: Services) -> None:
    """Watch all agents, and real devices that the server itself drives."""
    state = services.state
    own = [m for m in state.inventory.by_machine if state.hardware.may_change(m)]
    for name in dict.fromkeys([*services.registry.agents, *own]):
        services.heartbeats.begin(name)


async def leave_machines(services: Services) -> None:
    """Stop watching all agents and disconnect from them."""
    await services.heartbeats.close()
    for name in services.registry.agents:
        await let_go(services.state.hardware.remove(name))
