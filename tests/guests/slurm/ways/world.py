"""A controller over a simulated pod, and a Slurm that answers what a test determines about its
jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from podwright.agents import SimulatedMachine
from podwright.controller import Caller, Controller, Role
from podwright.errors import Unavailable
from podwright.fabric import preset
from podwright.guests.slurm.service import HookJob
from podwright.guests.slurm.service._squeue_jobs import _SQUEUE_COLUMN_WIDTHS
from podwright.slurm.site.commands import CommandResult, FakeSlurm
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


class Slurm(FakeSlurm):
    """squeue, scontrol and sinfo of a handful of jobs. jobs: job -> state, licences, comment."""

    def __init__(self) -> None:
        super().__init__(self._answer_to)
        self.jobs: dict[int, list[str]] = {}
        self.down = False
        self.drained: dict[str, str] = {}

    def add(self, job: int, state: str = "RUNNING", licences: str = "") -> None:
        self.jobs[job] = [state, licences, ""]

    def comment(self, job: int) -> str:
        return self.jobs[job][2]

    def _answer_to(self, argv: Sequence[str]) -> CommandResult | str:
        if self.down:
            return CommandResult(1, "", "Unable to contact slurm controller")
        if argv[0] == "sinfo":
            return "".join(f"{name}|{reason}\n" for name, reason in self.drained.items())
        if argv[0] == "squeue":
            rows = []
            for job, (state, licences, said) in self.jobs.items():
                words = [str(job), state, "0", "0", "1", "Licenses", "NONE", "1:00", licences, said]
                words += [""] * 5
                rows.append(
                    "".join(
                        w.ljust(n)
                        for w, n in zip(words, _SQUEUE_COLUMN_WIDTHS.values(), strict=True)
                    )
                )
            return "\n".join(rows) + "\n"
        fields = dict(word.partition("=")[::2] for word in argv[2:])
        if "admincomment" in fields:
            self.jobs[int(fields["jobid"])][2] = fields["admincomment"]
        if "nodename" in fields:
            self.drained.pop(fields["nodename"], None)
        if argv[1] == "hold":
            self.jobs[int(argv[2])][0] = "HELD"
        return ""


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
