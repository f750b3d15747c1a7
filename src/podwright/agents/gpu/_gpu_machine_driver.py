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

import msgspec

from podwright.agents._device_record import DeviceRecord
from podwright.agents._driver_interface import MachineReport
from podwright.agents.gpu._cgroups import Cgroups
from podwright.agents.gpu._describe import attributes, names
from podwright.agents.gpu._guards import (
    EpochGuard,
    FileGuard,
    Guard,
    HeldPartition,
    Upkeep,
    uid_of_user,
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
from podwright.wire.agent import DeviceState

_T = TypeVar("_T")
_log = logging.getLogger("podwright.agent")

#: Seconds that killed processes have to release a GPU.
RELEASE_PATIENCE_S = 10.0


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
        patience: float = RELEASE_PATIENCE_S,
    ) -> None:
        self.machine = machine
        self.family = family
        self._parts = divided(gpus)
        self.gpus = tuple(device.gpu for device in self._parts)
        self.devices = [DeviceRecord() for _ in self.gpus]
        self.simulated = any(library.simulated for library in libraries)
        self._reset = reset
        self._guards = tuple(guards)
        self._patience = patience
        self._libraries = {library.vendor: library for library in libraries}
        self._versions = {library.vendor: library.version() for library in libraries}
        self._first = {
            vendor: next(vendor_gpu.index for vendor_gpu in gpus if vendor_gpu.vendor == vendor)
            for vendor in {gpu.vendor for gpu in gpus}
        }
        self._running_changes = 0
        self._guard_complaints: list[str] = []
        self._last_report: tuple[DeviceState, ...] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpus")

    def close(self) -> None:
        """Close the libraries."""
        self._thread.shutdown()
        for library in self._libraries.values():
            library.close()

    def raise_fence(self, kind: str, epoch: int, devices: Sequence[int]) -> None:
        """Refuse older epochs from now on. Raises wire.Fenced when this epoch is older."""
        for device_index in devices:
            if epoch < self.devices[device_index].seen:
                raise Fenced(
                    f"GPU {device_index} of machine {self.machine.name} has seen epoch "
                    f"{self.devices[device_index].seen}, newer than {epoch}",
                    operation=kind,
                )
        for device_index in devices:
            self.devices[device_index].seen = epoch

    # -- the interface of a driver ------------------------------------------------------------

    async def describe(self) -> MachineReport:
        """See `Driver.describe`.

        While a change is under way, this returns the devices as they were before the change: a
        reset takes longer than a machine may be silent.
        """
        if not self._running_changes or self._last_report is None:
            partitions = self._held_partitions()
            self._last_report = await self._run_in_thread(
                lambda: self._device_reports(self._repair_guards(partitions))
            )
        versions_by_vendor = self._versions
        versions_text = ", ".join(
            f"{vendor} {version}" for vendor, version in versions_by_vendor.items()
        )
        return MachineReport(
            devices=self._last_report,
            configured={
                index: (device.partition, device.epoch)
                for index, device in enumerate(self.devices)
                if device.partition
            },
            software="simulated" if self.simulated else versions_text,
            name=self.machine.name,
            family=self.family.name,
            fence=max((device.seen for device in self.devices), default=0),
            cuts_off=self._cutoff_party(),
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
        chosen_gpus = [self.gpus[gpu_index] for gpu_index in devices]
        fresh_indices = [
            device_index
            for device_index in devices
            if self.devices[device_index].partition != partition
        ]
        partitions = self._held_partitions()

        def work() -> None:
            self._require_healthy(chosen_gpus)
            self._repair_guards(partitions)
            for guard in self._guards:
                guard.check(chosen_gpus)
            self._wait_until_free([self.gpus[gpu_index] for gpu_index in fresh_indices])
            for guard in self._guards:
                guard.join(partition, owner, chosen_gpus)

        await self._change(epoch, work)
        for gpu_index in devices:
            self.devices[gpu_index].partition = partition
            self.devices[gpu_index].owner = owner
            self.devices[gpu_index].epoch = epoch

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.reset`."""
        self.raise_fence("reset", epoch, devices)
        gpus = [self.gpus[index] for index in devices]
        partitions = self._held_partitions()

        def work() -> None:
            self._reset_when_free(gpus)
            for partition in partitions:  # restores, for whole partitions, what the reset lost
                if not set(partition.gpus).isdisjoint(gpus):
                    for guard in self._guards:
                        guard.join(*partition)

        await self._change(epoch, work)
        for device_index in devices:
            self.devices[device_index].epoch = epoch

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """See `Driver.fence`."""
        self.raise_fence("fence", epoch, devices)
        chosen_gpus = [self.gpus[index] for index in devices]
        affected_partitions = [
            partition
            for partition in self._held_partitions()
            if not set(partition.gpus).isdisjoint(chosen_gpus)
        ]

        def work() -> None:
            self._kill_launch(affected_partitions, chosen_gpus, run)
            self._reset_when_free(chosen_gpus)
            for held_partition in affected_partitions:
                for guard in self._guards:
                    guard.join(*held_partition)

        await self._change(epoch, work)
        for device_index in devices:
            self.devices[device_index].epoch = epoch

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.release`."""
        self.raise_fence("release", epoch, devices)
        gpus = [self.gpus[index] for index in devices]
        partitions = self._held_partitions()

        def work() -> None:
            self._reset_when_free(gpus)
            self._repair_guards(partitions)
            for guard in reversed(self._guards):
                guard.leave(gpus)

        await self._change(epoch, work)
        for device_index in devices:
            self.devices[device_index].partition = self.devices[device_index].owner = ""
            self.devices[device_index].epoch = epoch

    async def enter(self, partition: str, pid: int, uid: int) -> None:
        """Move a process of this user into the device cgroup of a partition.

        Raises wire.WrongState without such a guard, wire.NotFound for an unknown partition, and
        wire.Denied for a user who does not own the partition.
        """
        held_partition = next(
            (
                candidate
                for candidate in self._held_partitions()
                if candidate.partition == partition
            ),
            None,
        )
        guard = next((guard for guard in self._guards if isinstance(guard, Cgroups)), None)
        action = f"a process in partition {partition}"
        if guard is None:
            raise WrongState(
                f"machine {self.machine.name} uses no device cgroups", operation=action
            )
        if held_partition is None:
            raise NotFound(
                f"machine {self.machine.name} has no GPUs of partition {partition}",
                operation=action,
            )
        is_anybodys = held_partition.owner in ("", "anonymous")
        if not is_anybodys and uid != 0 and uid != uid_of_user(held_partition.owner):
            raise Denied(
                f"partition {partition} is user {held_partition.owner}'s", operation=action
            )
        await self._run_in_thread(lambda: guard.enter(partition, pid))

    def _held_partitions(self) -> list[HeldPartition]:
        indices_by_partition: dict[str, list[int]] = {}
        for device_index, device in enumerate(self.devices):
            if device.partition:
                indices_by_partition.setdefault(device.partition, []).append(device_index)
        return [
            HeldPartition(
                name,
                self.devices[indices[0]].owner,
                tuple(self.gpus[index] for index in indices),
            )
            for name, indices in indices_by_partition.items()
        ]

    # -- inside, in the thread ---------------------------------------------------------------

    def _repair_guards(self, partitions: Sequence[HeldPartition]) -> dict[str, str]:
        """Let the guards repair their settings. Returns the problems that remain, by GPU UUID."""
        problems_by_uuid: dict[str, str] = {}
        new_complaints: list[str] = []
        for guard in self._guards:
            if isinstance(guard, Upkeep):
                try:
                    problems_by_uuid.update(guard.keep(partitions))
                except PodwrightError as error:  # programs go on; the next call may repair it
                    new_complaints.append(error.message)
        for complaint in new_complaints:
            if complaint not in self._guard_complaints:
                _log.warning("machine %s: %s", self.machine.name, complaint)
        self._guard_complaints = new_complaints
        return problems_by_uuid

    async def _change(self, epoch: int, apply_change: Callable[[], None]) -> None:
        def under_epoch() -> None:
            for guard in self._guards:
                if isinstance(guard, EpochGuard):
                    guard.under(epoch)
            apply_change()

        self._running_changes += 1
        try:
            await self._run_in_thread(under_epoch)
        finally:
            self._running_changes -= 1

    async def _run_in_thread(self, library_work: Callable[[], _T]) -> _T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, library_work)
        except LibraryError as error:
            raise Unavailable(f"machine {self.machine.name}: {error}") from None

    def _library_of(self, gpu: Gpu) -> tuple[Library, int]:
        whole_gpu = self._parts[gpu.index].whole
        return self._libraries[gpu.vendor], whole_gpu.index - self._first[gpu.vendor]

    def _holders(self, gpu: Gpu) -> tuple[GpuUser, ...]:
        library, index = self._library_of(gpu)
        gpu_users, slice_id = library.holders(index), self._parts[gpu.index].part
        return (
            tuple(user for user in gpu_users if user.slice in ("", slice_id))
            if slice_id
            else gpu_users
        )

    def _device_reports(self, problems_by_uuid: Mapping[str, str]) -> tuple[DeviceState, ...]:
        device_reports = []
        for gpu in self.gpus:
            library, library_index = self._library_of(gpu)
            health, holders = library.health(library_index), self._holders(gpu)
            # The driver measures whole GPUs. The figures of a whole GPU would show the user of one
            # slice what others do on it.
            sample = Sample() if self._parts[gpu.index].part else library.sample(library_index)
            # The clique of a rack's GPU changes when it is reset in another partition.
            current = gpu
            if gpu.place is not None or gpu.fabric:
                current = msgspec.structs.replace(gpu, fabric=library.fabric(library_index))
            if gpu.uuid in problems_by_uuid:
                health = health._replace(problems=(*health.problems, problems_by_uuid[gpu.uuid]))
            device_reports.append(
                DeviceState(
                    index=gpu.index,
                    ip=self.machine.host,
                    server_port=0,
                    rdma_port=0,
                    arch_id=0,
                    chip_id=gpu.uuid,
                    healthy=not health.problems,
                    attributes=attributes(
                        current, self._versions[gpu.vendor], health, holders, sample
                    ),
                )
            )
        return tuple(device_reports)

    def _require_healthy(self, gpus: Sequence[Gpu]) -> None:
        for gpu in gpus:
            library, index = self._library_of(gpu)
            if problems := library.health(index).problems:
                raise Internal(f"{self._gpu_in_words(gpu)} is unhealthy: {', '.join(problems)}")

    def _wait_until_free(self, gpus: Sequence[Gpu]) -> None:
        """Wait until no process holds these GPUs.

        A driver lists a process for a moment after it has ended, so this waits up to `patience`
        seconds. Raises wire.Internal, which names the holders, when they stay longer.
        """
        deadline = time.monotonic() + self._patience
        for gpu in gpus:
            while holders := self._holders(gpu):
                if time.monotonic() >= deadline:
                    raise Internal(
                        f"{self._gpu_in_words(gpu)} is held by {names(holders)}",
                        would_work="end these processes, then reset the partition or remove it",
                    )
                time.sleep(0.1)

    def _cutoff_party(self) -> str:
        """Name the party that can cut off a process against its will: devices, agent or nobody.

        A guard closes the device files, but a file that is already open stays open. The agent
        must therefore run as root, to end the process first.
        """
        if self.simulated:
            return "devices"
        files = any(isinstance(guard, Cgroups | FileGuard) for guard in self._guards)
        return "agent" if files and os.geteuid() == 0 else ""

    def _kill_launch(
        self, partitions: Sequence[HeldPartition], gpus: Sequence[Gpu], run_id: str
    ) -> None:
        """Kill the processes of a launch.

        These are the processes in the group of a partition whose GPUs on this machine are all in
        `gpus`, the processes with the launch's mark, and the owner's processes that hold one of
        `gpus`.
        """
        processes_by_pid = processes()
        pids_to_kill = (
            {process.pid for process in marked(RUN_VARIABLE, run_id)} if run_id else set()
        )
        for partition, owner, partition_gpus in partitions:
            if set(partition_gpus) <= set(gpus):
                for guard in self._guards:
                    if isinstance(guard, Cgroups):
                        pids_to_kill.update(guard.members(partition))
            if owner:
                for gpu in gpus:
                    pids_to_kill.update(
                        user.pid for user in self._holders(gpu) if user.user == owner
                    )
        kill_all(
            [
                processes_by_pid[pid]
                for pid in pids_to_kill - {os.getpid()}
                if pid in processes_by_pid
            ],
            signal.SIGKILL,
        )

    def _reset_when_free(self, gpus: Sequence[Gpu]) -> None:
        self._wait_until_free(gpus)
        if self._reset is not None:
            for gpu in gpus:
                if gpu.whole:
                    continue  # a reset would affect the other parts of its GPU
                self._reset(gpu)
                library, index = self._library_of(gpu)
                library.forget(index)

    def _gpu_in_words(self, gpu: Gpu) -> str:
        return f"GPU {gpu.index} of machine {self.machine.name}"
