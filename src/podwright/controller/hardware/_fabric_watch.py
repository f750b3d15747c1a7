"""Compares the fabric with what the controller holds, every minute and after each of its events.

Between two calls somebody may reset the manager, delete a partition or compose a device elsewhere,
and a late request may arrive. What differs is read again under the partition's lock. Then:

- Devices that nobody holds leave whatever partition of Podwright's they are in.
- A partition that nobody uses is joined anew.
- A partition in use turns to ERROR, with both sides in the reason. Its holder decides what follows.
- Free devices that the fabric could not join are kept from placement until it could.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from podwright.agents import (
    FabricDevice,
    FabricDriver,
    FabricReading,
    devices_of,
    named_devices,
    parts_of,
)
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._machine_calls import MachineFault
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import READY, state_of
from podwright.errors import PodwrightError, Unavailable
from podwright.placement import Block, Placement

_log = logging.getLogger("podwright.fabric")

Sleep = Callable[[float], Awaitable[None]]

PERIOD_S: Final = 60.0
#: Seconds between two readings, however many events come.
_SHORTEST_PAUSE_S: Final = 2.0
#: Seconds for one reading. A driver's own calls to its manager end sooner.
_PATIENCE_S: Final = 30.0
#: Partitions and machines that are compared before other work gets its turn.
_BATCH: Final = 100


class Difference(NamedTuple):
    """How one partition of the fabric differs from the controller's.

    name: the fabric's. missing, extra: devices that it lacks, or has in addition. doubt: why the
    fabric's own records cannot be relied on.
    """

    name: str
    missing: frozenset[FabricDevice] = frozenset()
    extra: frozenset[FabricDevice] = frozenset()
    doubt: str = ""

    def in_words(self) -> str:
        """Return both sides in a sentence without its full stop."""
        sides = []
        if self.missing:
            sides.append(
                f"Podwright holds {named_devices(self.missing)} in partition {self.name}, "
                "and the fabric does not"
            )
        if self.extra:
            sides.append(
                f"the fabric has {named_devices(self.extra)} in partition {self.name}, "
                "and Podwright does not"
            )
        if self.doubt:
            sides.append(f"the fabric says of partition {self.name}: {self.doubt}")
        return "; ".join(sides)


class FabricWatch:
    """Reads the fabric and mends what differs. sleep: how it waits."""

    def __init__(self, state: ControllerState, sleep: Sleep) -> None:
        self._state = state
        self._sleep = sleep
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()
        #: When the fabric was last read, by the controller's clock; None: never since the start.
        self.read_at: float | None = None
        #: Why the last attempt to read the fabric failed; empty: it did not.
        self.problem = ""

    def wake(self) -> None:
        """Read the fabric soon. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def run(self) -> None:
        """Run until it is cancelled or the journal has failed."""
        self._loop = asyncio.get_running_loop()
        while self._state.journal.failure is None:
            try:
                await self.look()
            except PodwrightError as error:
                self._note_problem(error.problem)
            except Exception:
                _log.exception("the fabric was not compared; the next look begins anew")
            await self._sleep(_SHORTEST_PAUSE_S)
            await self._wait_for_event(PERIOD_S - _SHORTEST_PAUSE_S)

    async def look(self) -> None:
        """Read the fabric once, and act on what differs. Raises PodwrightError."""
        state = self._state
        driver = state.hardware.fabric
        if driver is None:
            return
        machines = tuple(state.inventory.by_machine)
        reading = await self._read(driver, machines)
        self.read_at, self.problem = state.now(), ""
        await self._withhold(machines, reading)
        suspects = []
        for number, entry in enumerate(list(state.partitions.values())):
            if number % _BATCH == 0:
                await asyncio.sleep(0)  # leases and requests do not wait for a large pod
            if _is_settled(entry) and differences(entry, reading):
                suspects.append(entry)
        # Those that nobody uses come first: what they get back is taken from those in use.
        for entry in sorted(suspects, key=lambda entry: bool(entry.leases or entry.fences)):
            await self._mend(driver, entry)
        strays = frozenset(
            device
            for name, members in reading.partitions.items()
            if name.partition("@")[0] not in state.partitions
            for device in members
        )
        if strays:
            await self._take_out(driver, strays)

    async def _read(self, driver: FabricDriver, machines: Iterable[str]) -> FabricReading:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await driver.read(tuple(machines))
        except TimeoutError:
            raise Unavailable(f"{driver.kind} does not answer within {_PATIENCE_S:g} s") from None

    async def _withhold(self, machines: Iterable[str], reading: FabricReading) -> None:
        """Keep devices from placement that the fabric could not join, and give others back."""
        state = self._state
        for number, machine in enumerate(machines):
            if number % _BATCH == 0:
                await asyncio.sleep(0)
            cluster = state.inventory.by_machine.get(machine)
            if cluster is None:
                continue  # its cluster was removed meanwhile
            owners = state.partitions.owners(machine)
            reasons = {
                index: why
                for index in range(cluster.layout.family.devices_per_machine)
                if index not in owners
                and (why := reading.why_not_free(FabricDevice(machine, index)))
            }
            cluster.withhold(machine, reasons)

    async def _mend(self, driver: FabricDriver, entry: PartitionEntry) -> None:
        state = self._state
        async with entry.lock:
            if entry.removed or not _is_settled(entry):
                return
            # Read again under the lock: the first reading may be older than a step.
            machines = tuple(entry.parts())
            reading = await self._read(driver, machines)
            found = differences(entry, reading)
            if extra := frozenset().union(*(difference.extra for difference in found)):
                await self._take_out(driver, extra)
                reading = await self._read(driver, machines)
                found = differences(entry, reading)
            if not found:
                return
            words = "; ".join(difference.in_words() for difference in found)
            reason = f"{driver.kind} and Podwright differ: {words}"
            if not entry.leases and not entry.fences:
                # Nobody uses it. The epoch is new, as an ended lease's may be younger than its own.
                missing = frozenset().union(*(difference.missing for difference in found))
                elsewhere = missing & frozenset().union(*reading.partitions.values())
                if elsewhere:
                    with suppress(PodwrightError):  # the join says why
                        await driver.leave(state.epochs.next(), parts_of(elsewhere))
                faults = await steps.join(state, entry, state.epochs.next(), entry.parts())
                if not faults:
                    state.record_event("Mended", entry.name, entry.known.owner, reason)
                    return
                reason = f"{reason}; joining it anew failed: {faults[0].reason}"
            await steps.mark_partition_broken(
                state, entry, [MachineFault(machines[0], reason, False)]
            )

    async def _take_out(self, driver: FabricDriver, devices: frozenset[FabricDevice]) -> None:
        """Take devices that nobody holds out of Podwright's partitions. All others stay."""
        state = self._state
        for machine, indices in parts_of(devices).items():
            cluster = state.inventory.by_machine.get(machine)
            if cluster is None:
                continue
            for index in indices:
                placement = _placement_of(state, machine, index)
                try:
                    # Taken meanwhile, so that nobody joins it under an older epoch than this.
                    cluster.index.take(placement)
                except (ValueError, IndexError):
                    continue  # somebody holds it
                try:
                    epoch = state.epochs.next()
                    await driver.leave(epoch, {machine: [index]})
                    device = named_devices([FabricDevice(machine, index)])
                    state.record_event(
                        "Mended", machine, "", f"{driver.kind} still had {device} in a partition"
                    )
                except PodwrightError as error:
                    self._note_problem(error.problem)
                finally:
                    cluster.index.release(placement)
                    state.freed(cluster, placement.blocks, "")

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            _log.warning("the fabric cannot be compared: %s", problem)
        self.problem = problem

    async def _wait_for_event(self, seconds: float) -> None:
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        waiting = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({sleeping, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            waiting.cancel()
            self._event.clear()


def differences(entry: PartitionEntry, reading: FabricReading) -> list[Difference]:
    """Return how the fabric's partitions of this one differ from it; none where they agree."""
    expected = {name: devices_of(parts) for name, parts in entry.joins(entry.parts()).items()}
    names = {name for name in reading.partitions if name.partition("@")[0] == entry.name}
    found = []
    for name in sorted(names | expected.keys()):
        held = expected.get(name, frozenset())
        members = reading.partitions.get(name, frozenset())
        doubt = reading.doubts.get(name, "")
        if held != members or doubt:
            found.append(Difference(name, held - members, members - held, doubt))
    return found


def _is_settled(entry: PartitionEntry) -> bool:
    return (
        entry.record is not None and entry.cluster is not None and state_of(entry.record) == READY
    )


def _placement_of(state: ControllerState, machine: str, index: int) -> Placement:
    cluster = state.inventory.by_machine[machine]
    domain, position = cluster.places[machine]
    block = Block(domain, position * cluster.layout.family.devices_per_machine + index, 1)
    allocation = next(name for name, names in cluster.allocations.items() if machine in names)
    return Placement(allocation, (block,), (block,))
