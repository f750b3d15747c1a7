"""A machine with real GPUs behind the driver seam: read by its vendors' libraries, kept apart by
guards.

Libraries block, so they are called in a thread, one call at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from podwright.agents._device_record import DeviceRecord
from podwright.agents._driver import DeviceReport, MachineReport
from podwright.agents.gpu._cgroups import Cgroups
from podwright.agents.gpu._describe import attributes, names
from podwright.agents.gpu._guards import FileGuard, Guard, HeldPartition, Upkeep, user_number
from podwright.errors import (
    Denied,
    Fenced,
    Internal,
    NotFound,
    PodwrightError,
    Unavailable,
    WrongState,
)
from podwright.fabric import Family, Machine
from podwright.hosts import kill_all, marked, processes
from podwright.hosts.gpus import Gpu, GpuUser, Library, LibraryError, divided
from podwright.wire import RUN_VARIABLE

_T = TypeVar("_T")
_log = logging.getLogger("podwright.agent")

#: Seconds that processes which were ended have to let go of a GPU.
PATIENCE = 10.0


class GpuMachine:
    """Implements Driver, and what SavedMachine keeps (SavableDriver).

    reset: brings a GPU to its initial state; None where that is not allowed: then it is enough
    that nobody holds it, since a driver clears what a process leaves behind. guards: applied in
    their order, lifted in the other. gpus: of the machine; those in MIG mode are as many devices
    as they have slices.
    """

    def __init__(
        self,
        machine: Machine,
        family: Family,
        libraries: Sequence[Library],
        gpus: Sequence[Gpu],
        *,
        guards: Sequence[Guard] = (),
        reset: Callable[[Gpu], None] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.machine = machine
        self.family = family
        self._parts = divided(gpus)
        self.gpus = tuple(part.gpu for part in self._parts)
        self.devices = [DeviceRecord() for _ in self.gpus]
        self.simulated = any(library.simulated for library in libraries)
        self._reset = reset
        self._guards = tuple(guards)
        self._patience = patience
        self._libraries = {library.vendor: library for library in libraries}
        self._versions = {library.vendor: library.version() for library in libraries}
        self._first = {
            vendor: next(g.index for g in gpus if g.vendor == vendor)
            for vendor in {gpu.vendor for gpu in gpus}
        }
        self._changing = 0
        self._complaints: list[str] = []
        self._said: tuple[DeviceReport, ...] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")

    def close(self) -> None:
        """Let go of the libraries."""
        self._thread.shutdown()
        for library in self._libraries.values():
            library.close()

    def raise_fence(self, kind: str, epoch: int, devices: Sequence[int]) -> None:
        """Older epochs are refused from here on. Raises wire.Fenced when this is an older one."""
        for index in devices:
            if epoch < self.devices[index].seen:
                raise Fenced(
                    f"GPU {index} of machine {self.machine.name} has seen epoch "
                    f"{self.devices[index].seen}, newer than {epoch}",
                    asked=kind,
                )
        for index in devices:
            self.devices[index].seen = epoch

    # -- the driver seam ---------------------------------------------------------------------

    async def describe(self) -> MachineReport:
        """See `Driver.describe`. While a change is under way, devices are as they were before it:
        a reset takes longer than a machine may be silent."""
        if not self._changing or self._said is None:
            held = self._held()
            self._said = await self._call(lambda: self._describe(self._keep(held)))
        versions = self._versions
        software = ", ".join(f"{vendor} {version}" for vendor, version in versions.items())
        return MachineReport(
            devices=self._said,
            configured={
                i: (d.partition, d.epoch) for i, d in enumerate(self.devices) if d.partition
            },
            software="simulated" if self.simulated else software,
            name=self.machine.name,
            family=self.family.name,
            fence=max((d.seen for d in self.devices), default=0),
            cuts_off=self._cuts_off(),
            uid=os.geteuid(),
        )

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.configure`."""
        await self.configure_for("", partition, epoch, devices)

    async def configure_for(
        self, owner: str, partition: str, epoch: int, devices: Sequence[int]
    ) -> None:
        """See `OwnedDriver.configure_for`."""
        self.raise_fence("configure", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        fresh = [i for i in devices if self.devices[i].partition != partition]
        held = self._held()

        def work() -> None:
            self._must_be_healthy(chosen)
            self._keep(held)
            for guard in self._guards:
                guard.check(chosen)
            self._must_be_free([self.gpus[index] for index in fresh])
            for guard in self._guards:
                guard.join(partition, owner, chosen)

        await self._change(work)
        for index in devices:
            self.devices[index].partition = partition
            self.devices[index].owner = owner
            self.devices[index].epoch = epoch

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.reset`."""
        self.raise_fence("reset", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        held = self._held()

        def work() -> None:
            self._initial(chosen)
            for one in held:  # whole, as they were made: what was lost of them comes back
                if not set(one.gpus).isdisjoint(chosen):
                    for guard in self._guards:
                        guard.join(*one)

        await self._change(work)
        for index in devices:
            self.devices[index].epoch = epoch

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """See `Driver.fence`."""
        self.raise_fence("fence", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        held = [one for one in self._held() if not set(one.gpus).isdisjoint(chosen)]

        def work() -> None:
            self._end(held, chosen, run)
            self._initial(chosen)
            for one in held:
                for guard in self._guards:
                    guard.join(*one)

        await self._change(work)
        for index in devices:
            self.devices[index].epoch = epoch

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.release`."""
        self.raise_fence("release", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        held = self._held()

        def work() -> None:
            self._initial(chosen)
            self._keep(held)
            for guard in reversed(self._guards):
                guard.leave(chosen)

        await self._change(work)
        for index in devices:
            self.devices[index].partition = self.devices[index].owner = ""
            self.devices[index].epoch = epoch

    async def enter(self, partition: str, pid: int, uid: int) -> None:
        """Move a process of this user's into the device cgroup of a partition.

        Raises wire.WrongState without such a guard, wire.NotFound, or wire.Denied for a user
        whose partition it is not.
        """
        held = next((one for one in self._held() if one.partition == partition), None)
        guard = next((guard for guard in self._guards if isinstance(guard, Cgroups)), None)
        action = f"a process in partition {partition}"
        if guard is None:
            raise WrongState(f"machine {self.machine.name} uses no device cgroups", asked=action)
        if held is None:
            raise NotFound(
                f"machine {self.machine.name} has no GPUs of partition {partition}", asked=action
            )
        anybodys = held.owner in ("", "anonymous")
        if not anybodys and uid != 0 and uid != user_number(held.owner):
            raise Denied(f"partition {partition} is user {held.owner}'s", asked=action)
        await self._call(lambda: guard.enter(partition, pid))

    def _held(self) -> list[HeldPartition]:
        found: dict[str, list[int]] = {}
        for index, device in enumerate(self.devices):
            if device.partition:
                found.setdefault(device.partition, []).append(index)
        return [
            HeldPartition(
                name, self.devices[some[0]].owner, tuple(self.gpus[index] for index in some)
            )
            for name, some in found.items()
        ]

    # -- inside, in the thread ---------------------------------------------------------------

    def _keep(self, held: Sequence[HeldPartition]) -> dict[str, str]:
        """What is wrong with GPUs of partitions, and cannot be mended, by UUID."""
        wrong: dict[str, str] = {}
        said: list[str] = []
        for guard in self._guards:
            if isinstance(guard, Upkeep):
                try:
                    wrong.update(guard.keep(held))
                except PodwrightError as error:  # what runs goes on; the next look may mend it
                    said.append(error.message)
        for message in said:
            if message not in self._complaints:
                _log.warning("machine %s: %s", self.machine.name, message)
        self._complaints = said
        return wrong

    async def _change(self, work: Callable[[], None]) -> None:
        self._changing += 1
        try:
            await self._call(work)
        finally:
            self._changing -= 1

    async def _call(self, work: Callable[[], _T]) -> _T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except LibraryError as error:
            raise Unavailable(f"machine {self.machine.name}: {error}") from None

    def _asked(self, gpu: Gpu) -> tuple[Library, int]:
        whole = self._parts[gpu.index].whole
        return self._libraries[gpu.vendor], whole.index - self._first[gpu.vendor]

    def _holders(self, gpu: Gpu) -> tuple[GpuUser, ...]:
        library, index = self._asked(gpu)
        found, part = library.holders(index), self._parts[gpu.index].part
        return tuple(h for h in found if h.slice in ("", part)) if part else found

    def _describe(self, wrong: Mapping[str, str]) -> tuple[DeviceReport, ...]:
        reports = []
        for gpu in self.gpus:
            library, index = self._asked(gpu)
            health, holders = library.health(index), self._holders(gpu)
            if gpu.uuid in wrong:
                health = health._replace(problems=(*health.problems, wrong[gpu.uuid]))
            reports.append(
                DeviceReport(
                    index=gpu.index,
                    ip=self.machine.host,
                    server_port=0,
                    rdma_port=0,
                    arch_id=0,
                    chip_id=gpu.uuid,
                    healthy=not health.problems,
                    attributes=attributes(gpu, self._versions[gpu.vendor], health, holders),
                )
            )
        return tuple(reports)

    def _must_be_healthy(self, gpus: Sequence[Gpu]) -> None:
        for gpu in gpus:
            library, index = self._asked(gpu)
            if problems := library.health(index).problems:
                raise Internal(f"{self._named(gpu)} is unhealthy: {', '.join(problems)}")

    def _must_be_free(self, gpus: Sequence[Gpu]) -> None:
        """Nobody holds them any more, within the patience that ended processes are owed."""
        until = time.monotonic() + self._patience
        for gpu in gpus:
            while holders := self._holders(gpu):
                if time.monotonic() >= until:
                    raise Internal(
                        f"{self._named(gpu)} is held by {names(holders)}",
                        would_work="end them, and reset the partition or remove it again",
                    )
                time.sleep(0.1)

    def _cuts_off(self) -> str:
        """What can keep a process from these GPUs that does not want that.

        A guard closes them to it, and root ends it first: a file that is open stays open.
        """
        if self.simulated:
            return "devices"
        strict = any(isinstance(guard, Cgroups | FileGuard) for guard in self._guards)
        return "agent" if strict and os.geteuid() == 0 else ""

    def _end(self, held: Sequence[HeldPartition], gpus: Sequence[Gpu], run: str) -> None:
        """End the processes of a launch: those in the group of a partition all of whose GPUs here
        these are, those that carry the launch's mark, and those of the owner that hold one."""
        there = processes()
        pids = {process.pid for process in marked(RUN_VARIABLE, run)} if run else set()
        for partition, owner, own in held:
            if set(own) <= set(gpus):
                for guard in self._guards:
                    if isinstance(guard, Cgroups):
                        pids.update(guard.members(partition))
            if owner:
                for gpu in gpus:
                    pids.update(h.pid for h in self._holders(gpu) if h.user == owner)
        kill_all([there[pid] for pid in pids - {os.getpid()} if pid in there], signal.SIGKILL)

    def _initial(self, gpus: Sequence[Gpu]) -> None:
        self._must_be_free(gpus)
        if self._reset is not None:
            for gpu in gpus:
                if gpu.profile:
                    continue  # the others of its GPU would go with it
                self._reset(gpu)
                library, index = self._asked(gpu)
                library.forget(index)

    def _named(self, gpu: Gpu) -> str:
        return f"GPU {gpu.index} of machine {self.machine.name}"
