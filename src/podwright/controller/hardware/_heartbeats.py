"""Heartbeats: every registered agent is polled, and calls do not wait for a silent one.

The controller asks; agents need not find it. An agent that has not answered for `silence`
seconds is out of service at that very moment: nothing new is placed there, calls under way to it
are given up, and its partitions turn to ERROR with the reason. That it answers again is the
keeper's to notice (`_reconciler`), which cleans it before it serves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from podwright.agents import MachineReport
from podwright.controller.hardware import _steps as steps
from podwright.controller.hardware._registry import Registry
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._machine_calls import MachineFault
from podwright.controller.state._partition_index import Entry
from podwright.errors import PodwrightError, Unauthenticated, Unavailable, WrongState
from podwright.wire import OperationState, ReadyState

_log = logging.getLogger("podwright.controller")

Sleep = Callable[[float], Awaitable[None]]


class Heartbeats:
    """One task for each agent. silence: seconds without an answer that are too many.

    sleep: how it waits.
    """

    def __init__(
        self, state: ControllerState, registry: Registry, sleep: Sleep, *, silence: float
    ) -> None:
        self._state = state
        self._registry = registry
        self._sleep = sleep
        self.silence = silence
        self._beats: dict[str, asyncio.Task[None]] = {}
        #: By machine: why it does not accept this server, where it answers and refuses.
        self.strangers: dict[str, str] = {}

    def begin(self, machine: str) -> None:
        """Start watching an agent."""
        self.end(machine)
        self._beats[machine] = asyncio.get_running_loop().create_task(self._watch(machine))

    def end(self, machine: str) -> None:
        """Stop watching an agent."""
        if (task := self._beats.pop(machine, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop watching all agents."""
        beats, self._beats = list(self._beats.values()), {}
        for task in beats:
            task.cancel()
        await asyncio.gather(*beats, return_exceptions=True)

    async def _watch(self, machine: str) -> None:
        """A fault of ours in one look is no reason never to look again."""
        while self._state.journal.failure is None:
            try:
                await self._beat(machine)
            except Exception:
                _log.exception("the watch over machine %s begins again", machine)
                await self._sleep(self.silence / 4)

    async def _beat(self, machine: str) -> None:
        state, interval = self._state, self.silence / 4
        heard = state.now()
        settled = machine in state.down
        while state.journal.failure is None:
            left = heard + self.silence - state.now()
            asked_at, seconds = state.now(), min(interval, max(left, 0.01))
            try:
                report = await self._report(machine, seconds)
            except WrongState as refusal:  # it answers, but must not serve
                heard = state.now()
                if not settled:
                    await self._lost(machine, refusal.problem)
                settled = True
            except PodwrightError as error:
                self._note_stranger(machine, error)
                heard += self._stood_still(asked_at, seconds)
                if state.now() >= heard + self.silence:
                    if not settled:
                        reason = f"machine {machine} has been silent for {self.silence:g} s"
                        await self._lost(machine, reason)
                    settled = True
            else:
                self.strangers.pop(machine, None)
                heard, settled = state.now(), False
                with suppress(PodwrightError):
                    await self._compare(machine, report)
            left = heard + self.silence - state.now()
            slept, seconds = state.now(), min(interval, left) if left > 0 else interval
            await self._sleep(seconds)
            heard += self._stood_still(slept, seconds)

    def _note_stranger(self, machine: str, error: PodwrightError) -> None:
        """Keep why a machine does not accept this server. Silence says nothing new."""
        if isinstance(error, Unauthenticated) or error.data.get("stranger"):
            self.strangers[machine] = error.problem
        elif not isinstance(error, Unavailable):
            self.strangers.pop(machine, None)

    def _stood_still(self, since: float, seconds: float) -> float:
        """How much longer than it meant to this process waited: stopped, it hears nobody, and what
        has been said meanwhile is yet to be read."""
        late = self._state.now() - since - seconds
        return late if late > self.silence / 4 else 0.0

    async def _report(self, machine: str, seconds: float) -> MachineReport:
        """Its report, if that comes in time. Raises Unavailable, or WrongState when refused."""
        asking = asyncio.ensure_future(self._state.hardware.describe(machine))
        alarm = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({asking, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise Unavailable(f"machine {machine} does not answer within {seconds:g} s")
        finally:
            alarm.cancel()
            if not asking.done():
                asking.cancel()
                with suppress(asyncio.CancelledError, PodwrightError):
                    await asking

    async def _lost(self, machine: str, reason: str) -> None:
        """Out of service, and so is what lies on it.

        Where server and agent do not understand each other, what lies on it stays as it is: the
        programs there run on, and nobody may change anything.
        """
        state = self._state
        state.mark_down(machine)
        if machine in state.hardware.foreign:
            return
        state.hardware.give_up(machine, reason)
        entries = state.partitions.on(machine)
        await asyncio.gather(*(self._settle(entry, machine, reason) for entry in entries))

    async def _settle(self, entry: Entry, machine: str, reason: str) -> None:
        with suppress(PodwrightError):
            await entry.lock.acquire()
            try:
                if not entry.removed and entry.known.ready is ReadyState.ACTIVE:
                    await steps.break_down(
                        self._state, entry, [MachineFault(machine, reason, True)]
                    )
            finally:
                entry.lock.release()

    async def _compare(self, machine: str, report: MachineReport) -> None:
        """Does it still hold what it should? One that was switched off and on does not."""
        state = self._state
        cluster = state.inventory.by_machine.get(machine)
        if cluster is None or machine in state.down:
            return
        cluster.learn(machine, report)
        for entry in state.partitions.on(machine):
            if _forgotten(entry, machine, report):
                async with entry.lock:
                    if entry.removed:
                        continue
                    # Asked again under the lock: the first answer may be older than a step.
                    current = await state.hardware.describe(machine)
                    if _forgotten(entry, machine, current):
                        reason = f"machine {machine} has lost its configuration"
                        await steps.break_down(state, entry, [MachineFault(machine, reason, False)])


def _forgotten(entry: Entry, machine: str, report: MachineReport) -> bool:
    record = entry.record
    return (
        record is not None
        and record.ready is ReadyState.ACTIVE
        and record.operation is OperationState.IDLE
        and any(
            report.configured.get(index, ("", 0))[0] != record.name
            for index in entry.parts()[machine]
        )
    )
