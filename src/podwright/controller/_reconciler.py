"""What happens by itself: leases run out, silent machines are asked again, errors are reset.

One timer for all of it. Work that may take long (a machine that hangs) goes on beside the
timer, so that one machine delays no other's lease.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from podwright.controller import _fences as fences
from podwright.controller import _recovery as recovery
from podwright.controller import _steps as steps
from podwright.controller._core import AUTO_RESETS, Core, Entry
from podwright.controller._lease_expiry import expire
from podwright.controller._relocate import may_move, relocate
from podwright.controller._states import BROKEN, state_of
from podwright.errors import PodwrightError

_log = logging.getLogger("podwright.controller")

Sleep = Callable[[float], Awaitable[None]]

#: Seconds without a tick after which this process itself stood still: stopped, or its host asleep.
STANDSTILL: Final = 5.0
TICK: Final = 0.5  #: seconds; a lease that ran out ends within one tick and its step's time
PROBE: Final = 2.0  #: seconds between questions to a machine that is out of service


class Reconciler:
    """The timer. `sleep` is how it waits, so that tests can wait virtually.

    sweep: what else is due now and then.
    """

    def __init__(self, core: Core, sleep: Sleep, sweep: Callable[[], None]) -> None:
        self._core = core
        self._sweep = sweep
        self._sleep = sleep
        self._asking: set[str] = set()
        self._ask_at = 0.0
        self._settling: set[str] = set()
        self._ticked_at = core.now()

    async def run(self) -> None:
        """For ever; ends by being cancelled, or when the journal has failed."""
        while self._core.journal.failure is None:
            await self._sleep(TICK)
            if self._core.journal.failure is None:
                try:
                    self.tick()
                except Exception:  # whatever it is, no lease may live for ever because of it
                    _log.exception("what is due by itself was not all done; the next tick goes on")

    def tick(self) -> None:
        """Start whatever is due now."""
        core, now = self._core, self._core.now()
        still, self._ticked_at = now - self._ticked_at - TICK, now
        if still > STANDSTILL:  # nobody could renew meanwhile: our own down time is added
            for lease in core.leases.values():
                lease.expires += still
        for lease in core.expiries.due(now, core.leases):
            core.spawn(_quietly(partial(expire, core, lease)))
        for name in list(core.broken):
            entry = core.partitions.get(name)
            if entry is not None and _may_reset(core, entry, now):
                entry.retry_at = float("inf")  # until the attempt says otherwise
                core.spawn(_quietly(partial(self._auto_reset, entry)))
            elif entry is not None and may_move(core, entry, now):
                entry.retry_at = float("inf")
                core.spawn(_quietly(partial(self._relocate, entry)))
        if now >= self._ask_at:
            self._ask_at = now + PROBE
            self._sweep()
            for machine in core.down | {q.machine for q in core.quarantine.values()}:
                if machine not in self._asking:
                    self._asking.add(machine)
                    core.spawn(_quietly(partial(self._ask, machine)))
            for name in {entry.name for entry in core.fences.values()} - self._settling:
                self._settling.add(name)
                core.spawn(_quietly(partial(self._settle, name)))

    async def _settle(self, name: str) -> None:
        """Has what a lease left behind gone meanwhile, or can it be cut off now?"""
        core = self._core
        try:
            if (entry := core.partitions.get(name)) is None:
                return
            async with entry.lock:
                if entry.gone or not entry.fences:
                    return
                owners = {fence.id: fence.lease.owner for fence in entry.fences.values()}
                await fences.settle(core, entry)
                for lease in owners.keys() - entry.fences.keys():
                    core.tell("Fenced", name, owners[lease], f"nothing of {lease} is left")
        finally:
            self._settling.discard(name)

    async def _auto_reset(self, entry: Entry) -> None:
        core = self._core
        await entry.lock.acquire()
        try:
            if entry.gone or state_of(entry.known) != BROKEN or entry.leases or entry.fences:
                return
            if not await steps.reset(core, entry, auto=True):
                record = entry.known
                core.tell("Reset", entry.name, record.owner, f"attempt {record.auto_resets}")
        finally:
            entry.lock.release()

    async def _relocate(self, entry: Entry) -> None:
        core = self._core
        await entry.lock.acquire()
        try:
            if not entry.gone and state_of(entry.known) == BROKEN:
                await relocate(core, entry)
        finally:
            entry.lock.release()

    async def _ask(self, machine: str) -> None:
        """Is it back? Then whatever it should not hold is released before it serves again."""
        core = self._core
        try:
            report = await core.hardware.describe(machine)
            site = core.inventory.by_machine.get(machine)
            if site is None:
                return  # its cluster was removed meanwhile
            site.learn(machine, report)
            if not await recovery.release_strays(core, machine, report):
                return
            core.mark_up(machine)
            for entry in core.on(machine):
                await self._verify(entry, machine)
        finally:
            self._asking.discard(machine)

    async def _verify(self, entry: Entry, machine: str) -> None:
        core = self._core
        await entry.lock.acquire()
        try:
            if not entry.gone and entry.known.ready.value == "ACTIVE":
                # Asked again under the lock: the first answer may be older than a step.
                report = await core.hardware.describe(machine)
                await recovery.verify(core, entry, {machine: report})
        finally:
            entry.lock.release()


def _may_reset(core: Core, entry: Entry, now: float) -> bool:
    record = entry.record
    return (
        record is not None
        and record.auto_reset
        and record.auto_resets < AUTO_RESETS
        and now >= entry.retry_at
        and not entry.leases
        and not entry.fences
        and entry.site is not None
        and core.down.isdisjoint(entry.machines)
    )


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    """Failures are in the partition's state or in the journal; nobody waits to hear of them."""
    try:
        await work()
    except PodwrightError:
        return
