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
from podwright.controller.administration._audit import SERVER_CALLER, Audit
from podwright.controller.administration._privacy import Privacy, Visible
from podwright.controller.administration._users import Users
from podwright.controller.calls._agent_calls import let_go
from podwright.controller.calls._call_context import Services
from podwright.controller.hardware._discovery import Discovery
from podwright.controller.hardware._fabric_journal import StoredFabricJournal
from podwright.controller.hardware._fabric_watch import FabricWatch
from podwright.controller.hardware._heartbeats import Heartbeats, Sleep
from podwright.controller.hardware._registry import ConnectAgent, Registry
from podwright.controller.moves._launch_moves import LaunchMoves
from podwright.controller.queue._queue_membership import Waiting
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
    state: ControllerState, version: str, machine_settings: Machines, visible: Visible, sleep: Sleep
) -> Services:
    """The parts of a controller over its state. sleep: how heartbeats wait."""
    audit, users = (
        Audit(state.journal, state.now, wall_clock=state.wall),
        Users(machine_settings.administrators),
    )
    requests = Requests(state.journal.later, state.now, state.spawn)
    waiting, registry = Waiting(state, audit, requests), Registry(state, machine_settings.connect)

    def record_event(action: str, about: str, owner: str, detail: str) -> None:
        audit.record_event(SERVER_CALLER, action, about, owner=owner, detail=detail)

    state.record_event = record_event
    fabric_journal = StoredFabricJournal(state.journal)
    fabric_watch = None
    if machine_settings.fabric is not None:
        fabric_watch = FabricWatch(state, sleep)
        fabric_site = FabricSite(
            fabric_journal, lambda machine: reported_attributes(state, machine), fabric_watch.wake
        )
        state.hardware.fabric = machine_settings.fabric(fabric_site)
    state.hardware.patience = min(state.hardware.patience, machine_settings.silence)
    return Services(
        version=version,
        state=state,
        requests=requests,
        waiting=waiting,
        moves=LaunchMoves(state, waiting.named),
        audit=audit,
        registry=registry,
        heartbeats=Heartbeats(state, registry, sleep, silence=machine_settings.silence),
        users=users,
        discovery=machine_settings.discovery or Discovery((), lambda _: ""),
        privacy=Privacy(state, visible, users.allocations_of),
        introduce=machine_settings.introduce,
        starting=machine_settings.starting,
        fabric_journal=fabric_journal,
        fabric_watch=fabric_watch,
    )


def reported_attributes(state: ControllerState, machine: str) -> Sequence[Mapping[str, str]]:
    """The attributes of a machine's devices, as its agent last reported them."""
    cluster = state.inventory.by_machine.get(machine)
    return cluster.attributes_in(machine) if cluster is not None else ()


def load_machines(services: Services, opened_store: Opened) -> None:
    """Load machines and users from the store; partitions are loaded after them."""
    server_json = opened_store.records.get((META, "server"))
    name = msgspec.json.decode(server_json, type=str) if server_json else secrets.token_hex(8)
    if server_json is None:
        services.state.journal.later(Put(META, "server", msgspec.json.encode(name)))
    services.introduce(name, opened_store.epoch)
    services.fabric_journal.load(opened_store)
    services.registry.load(opened_store.records)
    allocations.load(services.state, opened_store.records)
    services.users.load(opened_store.records)


def watch_machines(services: Services) -> None:
    """Watch all agents, and real devices that the server itself drives."""
    state = services.state
    own_machines = [
        own_machine
        for own_machine in state.inventory.by_machine
        if state.hardware.may_change(own_machine)
    ]
    for machine in dict.fromkeys([*services.registry.agents, *own_machines]):
        services.heartbeats.begin(machine)


async def leave_machines(services: Services) -> None:
    """Stop watching all agents and disconnect from them."""
    await services.heartbeats.close()
    for machine in services.registry.agents:
        await let_go(services.state.hardware.remove(machine))
