"""What an administrator's calls stand on: the registry of agents, who watches them, users.

The calls themselves are in `_agent_calls`, `_cluster_calls` and `_user_calls`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from podwright.agents import FabricDriver, RemoteMachine
from podwright.controller import _allocations as allocations
from podwright.controller import _users as users
from podwright.controller._agent_calls import AgentCalls, let_go
from podwright.controller._cluster_calls import ClusterCalls
from podwright.controller._discovery import Discovery
from podwright.controller._heartbeats import Heartbeats, Sleep
from podwright.controller._records import META
from podwright.controller._registry import ConnectAgent, Registry
from podwright.controller._user_calls import UserCalls
from podwright.store import Opened, Put


@dataclass(frozen=True)
class Machines:
    """How the controller comes to machines that an administrator registers.

    connect: makes an agent's driver. silence: seconds without an answer after which one is out
    of service. discovery: what agents announce. fabric: makes what joins devices of several
    machines; it is given where a machine stands, as its link domain and its place there.
    introduce: told who this server is, by a name that its store keeps, and which start this is.
    administrators: common names that a certificate makes administrators of (see Users).
    """

    connect: ConnectAgent = RemoteMachine
    introduce: Callable[[str, int], None] = lambda *_: None
    silence: float = 10.0
    discovery: Discovery | None = None
    administrators: frozenset[str] = frozenset()
    fabric: Callable[[Callable[[str], tuple[int, int]]], FabricDriver] | None = None


class Administration(AgentCalls, ClusterCalls, UserCalls):
    """The part of the controller that serves administrators."""

    def _administer(self, machines: Machines, sleep: Sleep) -> None:
        core = self._core
        self._registry = Registry(core, machines.connect)
        self._watch = Heartbeats(core, self._registry, sleep, silence=machines.silence)
        self._users = users.Users(machines.administrators)
        self._discovery = machines.discovery or Discovery((), lambda _: "")
        self._changing = asyncio.Lock()
        self._introduce = machines.introduce
        if machines.fabric is not None:
            places = core.inventory.by_machine
            core.hardware.fabric = machines.fabric(lambda name: places[name].places[name])
        core.hardware.patience = min(core.hardware.patience, machines.silence)

    def _load_machines(self, opened: Opened) -> None:
        """Take over what is written, before partitions are."""
        body = opened.records.get((META, "server"))
        name = msgspec.json.decode(body, type=str) if body else secrets.token_hex(8)
        if body is None:
            self._core.journal.later(Put(META, "server", msgspec.json.encode(name)))
        self._introduce(name, opened.epoch)
        self._registry.load(opened.records)
        allocations.load(self._core, opened.records)
        self._users.load(opened.records)

    def _watch_machines(self) -> None:
        """Watch all agents, and real devices that the server itself drives."""
        own = [m for m in self._core.inventory.by_machine if self._core.hardware.may_change(m)]
        for name in dict.fromkeys([*self._registry.agents, *own]):
            self._watch.begin(name)

    async def _leave_machines(self) -> None:
        """Watch nobody, let go of all agents."""
        await self._watch.close()
        for name in self._registry.agents:
            await let_go(self._core.hardware.remove(name))
