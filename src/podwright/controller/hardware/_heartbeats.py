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
from podwright.controller.hardware import _partition_steps as steps
from podwright.controller.hardware._registry import Registry
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._machine_calls import MachineFault
from podwright.controller.state._partition_index import PartitionEntry
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
        self._watch_tasks: dict[str, asyncio.Task[None]] = {}
        #: By machine: why it does not accept this server, where it answers and refuses.
        self.strangers: dict[str, str] = {}

    def begin(self, machine: str) -> None:
        """Start watching an agent."""
        self.end(machine)
        self._watch_tasks[machine] = asyncio.get_running_loop().create_task(self._watch(machine))

    def end(self, machine: str) -> None:
        """Stop watching an agent."""
        if (task := self._watch_tasks.pop(machine, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop watching all agents."""
        watch_tasks, self._watch_tasks = list(self._watch_tasks.values()), {}
        for task in watch_tasks:
            task.cancel()
        await asyncio.gather(*watch_tasks, return_exceptions=True)

    async def _watch(self, machine: str) -> None:
        """A fault of ours in one look is no reason never to look again."""
        while self._state.journal.failure is None:
            try:
                await self._poll_machine(machine)
            except Exception:
                _log.exception("the watch over machine %s begins again", machine)
                await self._sleep(self.silence / 4)

    async def _poll_machine(self, machine: str) -> None:
        state, poll_interval_s = self._state, self.silence / 4
        last_heard_at = state.now()
        marked_lost = machine in state.down
        while state.journal.failure is None:
            seconds_to_silence = last_heard_at + self.silence - state.now()
            asked_at, wait_s = state.now(), min(poll_interval_s, max(seconds_to_silence, 0.01))
            try:
                report = await self._await_report(machine, wait_s)
            except WrongState as refusal:  # it answers, but must not serve
                last_heard_at = state.now()
                if not marked_lost:
                    await self._take_out_of_service(machine, refusal.problem)
                marked_lost = True
            except PodwrightError as error:
                self._note_stranger(machine, error)
                last_heard_at += self._time_stood_still(asked_at, wait_s)
                if state.now() >= last_heard_at + self.silence:
                    if not marked_lost:
                        reason = f"machine {machine} has been silent for {self.silence:g} s"
                        await self._take_out_of_service(machine, reason)
                    marked_lost = True
            else:
                self.strangers.pop(machine, None)
                last_heard_at, marked_lost = state.now(), False
                with suppress(PodwrightError):
                    await self._compare(machine, report)
            seconds_to_silence = last_heard_at + self.silence - state.now()
            slept_at, wait_s = (
                state.now(),
                min(poll_interval_s, seconds_to_silence)
                if seconds_to_silence > 0
                else poll_interval_s,
            )
            await self._sleep(wait_s)
            last_heard_at += self._time_stood_still(slept_at, wait_s)

    def _note_stranger(self, machine: str, refusal_error: PodwrightError) -> None:
        """Keep why a machine does not accept this server. Silence says nothing new."""
        if isinstance(refusal_error, Unauthenticated) or refusal_error.data.get("stranger"):
            self.strangers[machine] = refusal_error.problem
        elif not isinstance(refusal_error, Unavailable):
            self.strangers.pop(machine, None)

    def _time_stood_still(self, wait_began_at: float, wait_s: float) -> float:
        """How much longer than it meant to this process waited: stopped, it hears nobody, and what
        has been said meanwhile is yet to be read."""
        overrun_s = self._state.now() - wait_began_at - wait_s
        return overrun_s if overrun_s > self.silence / 4 else 0.0

    async def _await_report(self, machine: str, timeout_s: float) -> MachineReport:
        """Its report, if that comes in time. Raises Unavailable, or WrongState when refused."""
        describe_task = asyncio.ensure_future(self._state.hardware.describe(machine))
        timeout_task = asyncio.ensure_future(self._sleep(timeout_s))
        try:
            await asyncio.wait({describe_task, timeout_task}, return_when=asyncio.FIRST_COMPLETED)
            if describe_task.done():
                return describe_task.result()
            raise Unavailable(f"machine {machine} does not answer within {timeout_s:g} s")
        finally:
            timeout_task.cancel()
            if not describe_task.done():
                describe_task.cancel()
                with suppress(asyncio.CancelledError, PodwrightError):
                    await describe_task

    async def _take_out_of_service(self, machine: str, reason: str) -> None:
        """Out of service, and so is what lies on it.

        Where server and agent do not understand each other, what lies on it stays as it is: the
        programs there run on, and nobody may change anything.
        """
        state = self._state
        state.mark_down(machine)
        if machine in state.hardware.foreign:
            return
        state.hardware.abort_calls(machine, reason)
        affected_partitions = state.partitions.on(machine)
        await asyncio.gather(
            *(self._break_partition(entry, machine, reason) for entry in affected_partitions)
        )

    async def _break_partition(
        self, partition_entry: PartitionEntry, machine: str, reason: str
    ) -> None:
        with suppress(PodwrightError):
            await partition_entry.lock.acquire()
            try:
                if not partition_entry.removed and partition_entry.known.ready is ReadyState.ACTIVE:
                    await steps.mark_partition_broken(
                        self._state, partition_entry, [MachineFault(machine, reason, True)]
                    )
            finally:
                partition_entry.lock.release()

    async def _compare(self, machine: str, report: MachineReport) -> None:
        """Does it still hold what it should? One that was switched off and on does not."""
        state = self._state
        cluster = state.inventory.by_machine.get(machine)
        if cluster is None or machine in state.down:
            return
        cluster.learn(machine, report)
        for partition_entry in state.partitions.on(machine):
            if _has_lost_configuration(partition_entry, machine, report):
                async with partition_entry.lock:
                    if partition_entry.removed:
                        continue
                    # Asked again under the lock: the first answer may be older than a step.
                    current_report = await state.hardware.describe(machine)
                    if _has_lost_configuration(partition_entry, machine, current_report):
                        reason = f"machine {machine} has lost its configuration"
                        await steps.mark_partition_broken(
                            state, partition_entry, [MachineFault(machine, reason, False)]
                        )


def _has_lost_configuration(
    partition_entry: PartitionEntry, machine: str, report: MachineReport
) -> bool:
    record = partition_entry.record
    return (
        record is not None
        and record.ready is ReadyState.ACTIVE
        and record.operation is OperationState.IDLE
        and any(
            report.configured.get(index, ("", 0))[0] != record.name
            for index in partition_entry.parts()[machine]
        )
    )
