"""A controller over a simulated pod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role
from podwright.errors import Unavailable
from podwright.fabric import preset
from podwright.guests.slurm.service import HookJob
from podwright.store import MemoryStore
from podwright.wire import (
    CreateRequest,
    LeaseInfo,
    ListRequest,
    PartitionInfo,
    PartitionSpec,
    Value,
)

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
_V = TypeVar("_V", bound=Value)


class Pod:
    """A real controller, with the calls that the ways make to the server. silent: it does not
    answer.
    """

    def __init__(self, name: str = "pod16") -> None:
        cluster = preset(name)
        self.machines = {
            machine.name: SimulatedMachine(machine, cluster.family)
            for domain in cluster.domains
            for machine in domain.machines
        }
        self.controller = Controller(
            MemoryStore(), [cluster], dict(self.machines), version="test", driver_timeout=60.0
        )
        self.silent = False

    async def report(self, jobs: Sequence[object]) -> None:
        """Take what waits in Slurm, and ignore it."""

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        if self.silent:
            raise Unavailable("the server is down")
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()
        answer = await getattr(self.controller, name)(ROOT, request)
        assert isinstance(answer, reply)
        return answer

    async def make(self, name: str, size: int, **spec: Any) -> PartitionInfo:
        reply: PartitionInfo = await self.controller.create_partition(
            ROOT, CreateRequest(spec=PartitionSpec(name=name, size=size, **spec))
        )
        return reply

    async def allocations(self) -> dict[str, list[str]]:
        found = await self.controller.list_allocations(ROOT, ListRequest())
        return {one.name: one.agents for one in found.allocations}

    async def leases(self) -> list[LeaseInfo]:
        reply: list[LeaseInfo] = (await self.controller.list_leases(ROOT, ListRequest())).leases
        return reply


def asked(job: int, licences: str = "", *, hosts: str = "", restart: int = 0) -> HookJob:
    """Return a job in the words of the hook."""
    return HookJob(
        job=job,
        uid=1001,
        user="alice",
        licences=licences,
        hosts=hosts,
        restart=restart,
    )
