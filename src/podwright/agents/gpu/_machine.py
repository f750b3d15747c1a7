"""The driver of a machine with real GPUs: vendors' libraries read them, guards separate them.

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
from podwright.agents.gpu._guards import (
    EpochGuard,
    FileGuard,
    Guard,
    HeldPartition,
    Upkeep,
    user_number,
)
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
from podwright.hosts.gpus import Gpu, GpuUser, Library, LibraryError, Sample, divided
from podwright.wire import RUN_VARIABLE

_T = TypeVar("_T")
_log = logging.getLogger("podwright.agent")

#: Seconds that killed processes have to release a GPU.
PATIENCE = 10.0


class GpuMachine:
    """Implements Driver, and what SavedMachine keeps (SavableDriver).

    reset: brings a GPU to its initial state. None: resets are not allowed. A GPU that no process
    holds then counts as initial, since the driver clears what a process leaves behind. guards:
    applied in this order, and lifted in the reverse order. gpus: the GPUs of the machine. A GPU in
    MIG mode counts as one device for each of its slices. patience: seconds that killed processes
    have to release a GPU.
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
        self._last_report: tuple[DeviceReport, ...] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")

    def close(self) -> None:
        """Close the libraries."""
        self._thread.shutdown()
        for library in self._libraries.values():
            library.close()

    def raise_fence(self, kind: str, epoch: int, devices: Sequence[int]) -> None:
        """Refuse older epochs from now on. Raises wire.Fenced when this epoch is older."""
        for index in devices:
            if epoch < self.devices[index].seen:
                raise Fenced(
                    f"GPU {index} of machine {self.machine.name} has seen epoch "
                    f"{self.devices[index].seen}, newer than {epoch}",
                    operation=kind,
                )
        for index in devices:
            self.devices[index].seen = epoch

    # -- the interface of a driver ------------------------------------------------------------

    async def describe(self) -> MachineReport:
        """See `Driver.describe`.

        While a change is under way, this returns the devices as they were before the change: a
        reset takes longer than a machine may be silent.
        """
        if not self._changing or self._last_report is None:
            partitions = self._partitions()
            self._last_report = await self._call(lambda: self._describe(self._keep(partitions)))
        versions = self._versions
        software = ", ".join(f"{vendor} {version}" for vendor, version in versions.items())
        return MachineReport(
            devices=self._last_report,
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
        partitions = self._partitions()

        def work() -> None:
            self._must_be_healthy(chosen)
            self._keep(partitions)
            for guard in self._guards:
                guard.check(chosen)
            self._must_be_free([self.gpus[index] for index in fresh])
            for guard in self._guards:
                guard.join(partition, owner, chosen)

        await self._change(epoch, work)
        for index in devices:
            self.devices[index].partition = partition
            self.devices[index].owner = owner
            self.devices[index].epoch = epoch

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.reset`."""
        self.raise_fence("reset", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        partitions = self._partitions()

        def work() -> None:
            self._initial(chosen)
            for entry in partitions:  # restores, for whole partitions, what the reset lost
                if not set(entry.gpus).isdisjoint(chosen):
                    for guard in self._guards:
                        guard.join(*entry)

        await self._change(epoch, work)
        for index in devices:
            self.devices[index].epoch = epoch

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """See `Driver.fence`."""
        self.raise_fence("fence", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        affected = [entry for entry in self._partitions() if not set(entry.gpus).isdisjoint(chosen)]

        def work() -> None:
            self._end(affected, chosen, run)
            self._initial(chosen)
            for entry in affected:
                for guard in self._guards:
                    guard.join(*entry)

        await self._change(epoch, work)
        for index in devices:
            self.devices[index].epoch = epoch

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.release`."""
        self.raise_fence("release", epoch, devices)
        chosen = [self.gpus[index] for index in devices]
        partitions = self._partitions()

        def work() -> None:
            self._initial(chosen)
            self._keep(partitions)
            for guard in reversed(self._guards):
                guard.leave(chosen)

        await self._change(epoch, work)
        for index in devices:
            self.devices[index].partition = self.devices[index].owner = ""
            self.devices[index].epoch = epoch

    async def enter(self, partition: str, pid: int, uid: int) -> None:
        """Move a process of this user into the device cgroup of a partition.

        Raises wire.WrongState without such a guard, wire.NotFound for an unknown partition, and
        wire.Denied for a user who does not own the partition.
        """
        entry = next(
            (candidate for candidate in self._partitions() if candidate.partition == partition),
            None,
        )
        guard = next((guard for guard in self._guards if isinstance(guard, Cgroups)), None)
        action = f"a process in partition {partition}"
        if guard is None:
            raise WrongState(
                f"machine {self.machine.name} uses no device cgroups", operation=action
            )
        if entry is None:
            raise NotFound(
                f"machine {self.machine.name} has no GPUs of partition {partition}",
                operation=action,
            )
        anybodys = entry.owner in ("", "anonymous")
        if not anybodys and uid != 0 and uid != user_number(entry.owner):
            raise Denied(f"partition {partition} is user {entry.owner}'s", operation=action)
        await self._call(lambda: guard.enter(partition, pid))

    def _partitions(self) -> list[HeldPartition]:
        indices_of: dict[str, list[int]] = {}
        for index, device in enumerate(self.devices):
            if device.partition:
                indices_of.setdefault(device.partition, []).append(index)
        return [
            HeldPartition(
                name, self.devices[indices[0]].owner, tuple(self.gpus[index] for index in indices)
            )
            for name, indices in indices_of.items()
        ]

    # -- inside, in the thread ---------------------------------------------------------------

    def _keep(self, partitions: Sequence[HeldPartition]) -> dict[str, str]:
        """Let the guards repair their settings. Returns the problems that remain, by GPU UUID."""
        wrong: dict[str, str] = {}
        complaints: list[str] = []
        for guard in self._guards:
            if isinstance(guard, Upkeep):
                try:
                    wrong.update(guard.keep(partitions))
                except PodwrightError as error:  # programs go on; the next call may repair it
                    complaints.append(error.message)
        for message in complaints:
            if message not in self._complaints:
                _log.warning("machine %s: %s", self.machine.name, message)
        self._complaints = complaints
        return wrong

    async def _change(self, epoch: int, work: Callable[[], None]) -> None:
        def under_epoch() -> None:
            for guard in self._guards:
                if isinstance(guard, EpochGuard):
                    guard.under(epoch)
            work()

        self._changing += 1
        try:
            await self._call(under_epoch)
        finally:
            self._changing -= 1

    async def _call(self, work: Callable[[], _T]) -> _T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, work)
        except LibraryError as error:
            raise Unavailable(f"machine {self.machine.name}: {error}") from None

    def _library_of(self, gpu: Gpu) -> tuple[Library, int]:
        physical = self._parts[gpu.index].whole
        return self._libraries[gpu.vendor], physical.index - self._first[gpu.vendor]

    def _holders(self, gpu: Gpu) -> tuple[GpuUser, ...]:
        library, index = self._library_of(gpu)
        users, part = library.holders(index), self._parts[gpu.index].part
        return tuple(h for h in users if h.slice in ("", part)) if part else users

    def _describe(self, wrong: Mapping[str, str]) -> tuple[DeviceReport, ...]:
        reports = []
        for gpu in self.gpus:
            library, index = self._library_of(gpu)
            health, holders = library.health(index), self._holders(gpu)
            # The driver measures whole GPUs. The figures of a whole GPU would show the user of one
            # slice what others do on it.
            sample = Sample() if self._parts[gpu.index].part else library.sample(index)
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
                    attributes=attributes(gpu, self._versions[gpu.vendor], health, holders, sample),
                )
            )
        return tuple(reports)

    def _must_be_healthy(self, gpus: Sequence[Gpu]) -> None:
        for gpu in gpus:
            library, index = self._library_of(gpu)
            if problems := library.health(index).problems:
                raise Internal(f"{self._named(gpu)} is unhealthy: {', '.join(problems)}")

    def _must_be_free(self, gpus: Sequence[Gpu]) -> None:
        """Wait until no process holds these GPUs.

        A driver lists a process for a moment after it has ended, so this waits up to `patience`
        seconds. Raises wire.Internal, which names the holders, when they stay longer.
        """
        until = time.monotonic() + self._patience
        for gpu in gpus:
            while holders := self._holders(gpu):
                if time.monotonic() >= until:
                    raise Internal(
                        f"{self._named(gpu)} is held by {names(holders)}",
                        would_work="end these processes, then reset the partition or remove it",
                    )
                time.sleep(0.1)

    def _cuts_off(self) -> str:
        """Name the party that can cut off a process against its will: devices, agent or nobody.

        A guard closes the device files, but a file that is already open stays open. The agent
        must therefore run as root, to end the process first.
        """
        if self.simulated:
            return "devices"
        strict = any(isinstance(guard, Cgroups | FileGuard) for guard in self._guards)
        return "agent" if strict and os.geteuid() == 0 else ""

    def _end(self, partitions: Sequence[HeldPartition], gpus: Sequence[Gpu], run: str) -> None:
        """Kill the processes of a launch.

        These are the processes in the group of a partition whose GPUs on this machine are all in
        `gpus`, the processes with the launch's mark, and the owner's processes that hold one of
        `gpus`.
        """
        running = processes()
        pids = {process.pid for process in marked(RUN_VARIABLE, run)} if run else set()
        for partition, owner, own in partitions:
            if set(own) <= set(gpus):
                for guard in self._guards:
                    if isinstance(guard, Cgroups):
                        pids.update(guard.members(partition))
            if owner:
                for gpu in gpus:
                    pids.update(h.pid for h in self._holders(gpu) if h.user == owner)
        kill_all([running[pid] for pid in pids - {os.getpid()} if pid in running], signal.SIGKILL)

    def _initial(self, gpus: Sequence[Gpu]) -> None:
        self._must_be_free(gpus)
        if self._reset is not None:
            for gpu in gpus:
                if gpu.profile:
                    continue  # a reset would affect the other slices of its GPU
                self._reset(gpu)
                library, index = self._library_of(gpu)
                library.forget(index)

    def _named(self, gpu: Gpu) -> str:
        return f"GPU {gpu.index} of machine {self.machine.name}"
