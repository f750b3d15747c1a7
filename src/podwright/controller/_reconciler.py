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
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.hardware import _recovery as recovery
from podwright.controller.hardware._abandoned_leases import AbandonedLaunches
from podwright.controller.moves._relocate import may_move, relocate
from podwright.controller.partitions._lease_lifetime import expire
from podwright.controller.state._controller_state import MAX_AUTO_RESETS, ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._partition_states import BROKEN, state_of
from podwright.errors import PodwrightError

_log = logging.getLogger("podwright.controller")

Sleep = Callable[[float], Awaitable[None]]

#: Seconds without a tick after which this process itself stood still: stopped, or its host asleep.
STANDSTILL_SECONDS: Final = 5.0
TICK_S: Final = 0.5  #: seconds; a lease that ran out ends within one tick and its step's time
PROBE_PERIOD_S: Final = 2.0  #: seconds between questions to a machine that is out of service


class Reconciler:
    """The timer. `sleep` is how it waits, so that tests can wait virtually.

    sweep: what else is due now and then.
    """

    def __init__(self, state: ControllerState, sleep: Sleep, sweep: Callable[[], None]) -> None:
        self._state = state
        self._sweep = sweep
        self._sleep = sleep
        self._probed_machines: set[str] = set()
        self._ask_at = 0.0
        self._settling_partitions: set[str] = set()
        self._ticked_at = state.now()
        self._abandoned = AbandonedLaunches(state)
        self._is_checking_abandoned = False

    async def run(self) -> None:
        """Run until it is cancelled or the journal has failed."""
        while self._state.journal.failure is None:
            await self._sleep(TICK_S)
            if self._state.journal.failure is None:
                try:
                    self.tick()
                except Exception:  # whatever it is, no lease may live for ever because of it
                    _log.exception("what is due by itself was not all done; the next tick goes on")

    def tick(self) -> None:
        """Start all work that is due now."""
        state, now = self._state, self._state.now()
        standstill_seconds, self._ticked_at = now - self._ticked_at - TICK_S, now
        # Nobody could renew meanwhile: our own down time is added.
        if standstill_seconds > STANDSTILL_SECONDS:
            for lease in state.leases.values():
                lease.expires += standstill_seconds
        for lease in state.leases.due(now):
            state.spawn(_run_quietly(partial(expire, state, lease)))
        if state.own_host is not None and state.leases and not self._is_checking_abandoned:
            self._is_checking_abandoned = True
            state.spawn(_run_quietly(self._check_abandoned))
        for partition_name in list(state.partitions.broken):
            partition_entry = state.partitions.get(partition_name)
            if partition_entry is not None and _may_reset(state, partition_entry, now):
                partition_entry.retry_at = float("inf")  # until the attempt says otherwise
                state.spawn(_run_quietly(partial(self._auto_reset, partition_entry)))
            elif partition_entry is not None and may_move(state, partition_entry, now):
                partition_entry.retry_at = float("inf")
                state.spawn(_run_quietly(partial(self._relocate_partition, partition_entry)))
        if now >= self._ask_at:
            self._ask_at = now + PROBE_PERIOD_S
            self._sweep()
            for machine in state.down | {
                quarantine.machine for quarantine in state.quarantine.values()
            }:
                if machine not in self._probed_machines:
                    self._probed_machines.add(machine)
                    state.spawn(_run_quietly(partial(self._ask, machine)))
            for partition_name in {
                entry.name for entry in state.fences.values()
            } - self._settling_partitions:
                self._settling_partitions.add(partition_name)
                state.spawn(_run_quietly(partial(self._settle_fences, partition_name)))

    async def _check_abandoned(self) -> None:
        try:
            await self._abandoned.check()
        finally:
            self._is_checking_abandoned = False

    async def _settle_fences(self, partition_name: str) -> None:
        """Cut off what the fences of a partition wait for, and lift those that wait no more."""
        state = self._state
        try:
            if (partition_entry := state.partitions.get(partition_name)) is None:
                return
            async with partition_entry.lock:
                if partition_entry.removed or not partition_entry.fences:
                    return
                owner_by_lease = {
                    fence.id: fence.lease.owner for fence in partition_entry.fences.values()
                }
                await fences.settle(state, partition_entry)
                for lease_id in owner_by_lease.keys() - partition_entry.fences.keys():
                    state.record_event(
                        "Fenced",
                        partition_name,
                        owner_by_lease[lease_id],
                        f"nothing of {lease_id} is left",
                    )
        finally:
            self._settling_partitions.discard(partition_name)

    async def _auto_reset(self, partition_entry: PartitionEntry) -> None:
        state = self._state
        await partition_entry.lock.acquire()
        try:
            if (
                partition_entry.removed
                or state_of(partition_entry.known) != BROKEN
                or partition_entry.leases
                or partition_entry.fences
            ):
                return
            if partition_entry.known.unremoved:  # whoever removed it wants it gone
                await steps.remove(state, partition_entry, force=False)
                return
            if not await steps.reset(state, partition_entry, auto=True):
                partition_record = partition_entry.known
                state.record_event(
                    "Reset",
                    partition_entry.name,
                    partition_record.owner,
                    f"attempt {partition_record.auto_resets}",
                )
        finally:
            partition_entry.lock.release()

    async def _relocate_partition(self, partition_entry: PartitionEntry) -> None:
        state = self._state
        await partition_entry.lock.acquire()
        try:
            if not partition_entry.removed and state_of(partition_entry.known) == BROKEN:
                await relocate(state, partition_entry)
        finally:
            partition_entry.lock.release()

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
                await self._verify_partition(entry, machine)
        finally:
            self._probed_machines.discard(machine)

    async def _verify_partition(self, partition_entry: PartitionEntry, machine: str) -> None:
        state = self._state
        await partition_entry.lock.acquire()
        try:
            if not partition_entry.removed and partition_entry.known.ready.value == "ACTIVE":
                # Asked again under the lock: the first answer may be older than a step.
                report = await state.hardware.describe(machine)
                await recovery.verify(state, partition_entry, {machine: report})
        finally:
            partition_entry.lock.release()


def _may_reset(state: ControllerState, partition_entry: PartitionEntry, now: float) -> bool:
    record = partition_entry.record
    return (
        record is not None
        and (record.unremoved or (record.auto_reset and record.auto_resets < MAX_AUTO_RESETS))
        and now >= partition_entry.retry_at
        and not partition_entry.leases
        and not partition_entry.fences
        and partition_entry.cluster is not None
        and state.down.isdisjoint(partition_entry.machines)
    )


async def _run_quietly(work: Callable[[], Awaitable[None]]) -> None:
    """Ignore failures of background work: the partition's state or the journal records them."""
    try:
        await work()
    except PodwrightError:
        return
