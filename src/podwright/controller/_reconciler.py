"""The controller's timer: it expires leases, polls silent machines again and resets errors.

Work that may take long, such as a call to a machine that hangs, runs beside the timer, so that one
machine delays no lease on another.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from podwright.controller.hardware import _fences as fences
from podwright.controller.hardware import _recovery as recovery
from podwright.controller.hardware import _steps as steps
from podwright.controller.hardware._abandoned_leases import AbandonedLaunches
from podwright.controller.moves._relocate import may_move, relocate
from podwright.controller.partitions._lease_expiry import expire
from podwright.controller.state._controller_state import AUTO_RESETS, ControllerState
from podwright.controller.state._partition_index import Entry
from podwright.controller.state._states import BROKEN, state_of
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

    def __init__(self, state: ControllerState, sleep: Sleep, sweep: Callable[[], None]) -> None:
        self._state = state
        self._sweep = sweep
        self._sleep = sleep
        self._asking: set[str] = set()
        self._ask_at = 0.0
        self._settling: set[str] = set()
        self._ticked_at = state.now()
        self._abandoned = AbandonedLaunches(state)
        self._looking = False

    async def run(self) -> None:
        """Run until it is cancelled or the journal has failed."""
        while self._state.journal.failure is None:
            await self._sleep(TICK)
            if self._state.journal.failure is None:
                try:
                    self.tick()
                except Exception:  # whatever it is, no lease may live for ever because of it
                    _log.exception("what is due by itself was not all done; the next tick goes on")

    def tick(self) -> None:
        """Start all work that is due now."""
        state, now = self._state, self._state.now()
        still, self._ticked_at = now - self._ticked_at - TICK, now
        if still > STANDSTILL:  # nobody could renew meanwhile: our own down time is added
            for lease in state.leases.values():
                lease.expires += still
        for lease in state.leases.due(now):
            state.spawn(_quietly(partial(expire, state, lease)))
        if state.own_host is not None and state.leases and not self._looking:
            self._looking = True
            state.spawn(_quietly(self._check_abandoned))
        for name in list(state.partitions.broken):
            entry = state.partitions.get(name)
            if entry is not None and _may_reset(state, entry, now):
                entry.retry_at = float("inf")  # until the attempt says otherwise
                state.spawn(_quietly(partial(self._auto_reset, entry)))
            elif entry is not None and may_move(state, entry, now):
                entry.retry_at = float("inf")
                state.spawn(_quietly(partial(self._relocate, entry)))
        if now >= self._ask_at:
            self._ask_at = now + PROBE
            self._sweep()
            for machine in state.down | {q.machine for q in state.quarantine.values()}:
                if machine not in self._asking:
                    self._asking.add(machine)
                    state.spawn(_quietly(partial(self._ask, machine)))
            for name in {entry.name for entry in state.fences.values()} - self._settling:
                self._settling.add(name)
                state.spawn(_quietly(partial(self._settle, name)))

    async def _check_abandoned(self) -> None:
        try:
            await self._abandoned.check()
        finally:
            self._looking = False

    async def _settle(self, name: str) -> None:
        """Cut off what the fences of a partition wait for, and lift those that wait no more."""
        state = self._state
        try:
            if (entry := state.partitions.get(name)) is None:
                return
            async with entry.lock:
                if entry.removed or not entry.fences:
                    return
                owners = {fence.id: fence.lease.owner for fence in entry.fences.values()}
                await fences.settle(state, entry)
                for lease in owners.keys() - entry.fences.keys():
                    state.record_event("Fenced", name, owners[lease], f"nothing of {lease} is left")
        finally:
            self._settling.discard(name)

    async def _auto_reset(self, entry: Entry) -> None:
        state = self._state
        await entry.lock.acquire()
        try:
            if entry.removed or state_of(entry.known) != BROKEN or entry.leases or entry.fences:
                return
            if not await steps.reset(state, entry, auto=True):
                record = entry.known
                state.record_event(
                    "Reset", entry.name, record.owner, f"attempt {record.auto_resets}"
                )
        finally:
            entry.lock.release()

    async def _relocate(self, entry: Entry) -> None:
        state = self._state
        await entry.lock.acquire()
        try:
            if not entry.removed and state_of(entry.known) == BROKEN:
                await relocate(state, entry)
        finally:
            entry.lock.release()

    async def _ask(self, machine: str) -> None:
        """Poll a silent machine. If it answers, release what it holds wrongly and use it again."""
        state = self._state
        try:
            report = await state.hardware.describe(machine)
            cluster = state.inventory.by_machine.get(machine)
            if cluster is None:
                return  # its cluster was removed meanwhile
            cluster.learn(machine, report)
            if not await recovery.release_strays(state, machine, report):
                return
            state.mark_up(machine)
            for entry in state.partitions.on(machine):
                await self._verify(entry, machine)
        finally:
            self._asking.discard(machine)

    async def _verify(self, entry: Entry, machine: str) -> None:
        state = self._state
        await entry.lock.acquire()
        try:
            if not entry.removed and entry.known.ready.value == "ACTIVE":
                # Asked again under the lock: the first answer may be older than a step.
                report = await state.hardware.describe(machine)
                await recovery.verify(state, entry, {machine: report})
        finally:
            entry.lock.release()


def _may_reset(state: ControllerState, entry: Entry, now: float) -> bool:
    record = entry.record
    return (
        record is not None
        and record.auto_reset
        and record.auto_resets < AUTO_RESETS
        and now >= entry.retry_at
        and not entry.leases
        and not entry.fences
        and entry.cluster is not None
        and state.down.isdisjoint(entry.machines)
    )


async def _quietly(work: Callable[[], Awaitable[None]]) -> None:
    """Ignore failures of background work: the partition's state or the journal records them."""
    try:
        await work()
    except PodwrightError:
        return
