"""The time between start and end: passes on output and signals, and notices every ending.

One loop handles everything that can happen. It converts the input from descriptors and signals into
events (_local_reports, and _remote_hosts for other hosts), lets `_launch_state_machine` decide, and
has the decisions carried out by `_launch_actions`.
"""

from __future__ import annotations

import math
import select
import signal
from collections.abc import Sequence
from typing import Any

from podwright.hosts import in_words
from podwright.launcher.ending._launch_state_machine import LaunchMachine
from podwright.launcher.ending._launch_states import LaunchFacts
from podwright.launcher.instances._exit_cause import Cause
from podwright.launcher.instances._failures import FailureLog
from podwright.launcher.instances._instance_output import InstanceOutput
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.plan._plan import Plan
from podwright.launcher.run._attempt import Attempt
from podwright.launcher.run._launch_actions import LaunchActions
from podwright.launcher.run._local_reports import LocalReports, engine_output_event
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._launch_events import Event
from podwright.launcher.watchers._lease_clock import LeaseClock
from podwright.launcher.watchers._signals import (
    ENDING_SIGNALS,
    FORWARDED_SIGNALS,
    read_signals,
    stop,
)


class Watch:
    """Watches one start of all instances.

    output: poprun's own output. written: the instances' output. wake: a descriptor from which the
    numbers of signals are read. lease: tells when the lease is over. deadline: when --timeout is
    over, by monotonic(). mpirun: whether it starts the instances.
    """

    def __init__(
        self,
        attempt: Attempt,
        plan: Plan,
        output: Output,
        *,
        written: InstanceOutput,
        wake: int,
        lease: LeaseClock,
        deadline: float | None,
        mpirun: bool,
    ) -> None:
        self._output, self._written = output, written
        self._wake, self._lease, self._turns = wake, lease, lease.turns
        self._events: list[Event] = []
        self._remotes, trace = attempt.remotes, written.trace
        written.watch(lambda cause: self._events.append(on.RelayFailed(cause.code, cause.text)))
        self._remotes.watch(self)
        if trace.on:
            self._remotes.keep_time(trace.clock_answered)
        _, containment, containment_problem, _ = attempt.keeper.inner
        output.log(
            "I",
            "instances are in "
            f"{in_words(containment, containment_problem, bool(attempt.folder.reach))}",
        )
        hosts = [instance.host for instance in plan.instances]
        self._failures = FailureLog(attempt.folder, hosts, plan.log_folder or "")
        self._local = LocalReports(attempt, output, lease)
        self._actions = LaunchActions(attempt, output, written, hosts, self._failures)
        facts = LaunchFacts(
            instances=len(plan.instances),
            ranks=self._remotes.by_host,
            places=self._remotes.places,
            mpirun=mpirun,
            grace=plan.grace,
            timeout=plan.timeout or 0.0,
            deadline=deadline,
            move=plan.move if lease.seconds else None,
        )
        self._machine = LaunchMachine(facts, self._turns.began_awake_at)

    def run(self) -> Cause | None:
        """Watch until everything has ended. Returns the cause; None: all went well."""
        while not self._machine.done:
            self._run_turn()
        self._drain()
        return self.cause

    @property
    def cause(self) -> Cause | None:
        """The cause of the end."""
        return self._machine.cause

    @property
    def move_word(self) -> str:
        """The word of the request to move, after the instances were told."""
        return self._machine.relocation.word

    def last_words(self, index: int) -> list[bytes]:
        """Return the last lines that an instance wrote."""
        return self._written.last_words(index)

    # One turn of the loop

    def _run_turn(self) -> None:
        pause_seconds = self._seconds_until_due()
        ready_handles = self._wait_for_handles(pause_seconds)
        if self._wake in ready_handles:
            for number in read_signals(self._wake):
                self._handle_signal(number)
        # This process was stopped before the poll, or by a signal just now.
        if self._turns.begin(math.inf if pause_seconds is None else pause_seconds):
            self._lease.allow_late_renewal()
            self._events.append(on.HostsUnheard(self._turns.stood_still_s))
        self._remotes.hear(ready_handles)
        self._events += self._local.read(finished=self._machine.finished_on_own_host)
        if self._lease.ran_out():
            self._events.append(on.LeaseLost())
        if self._written.handle in ready_handles:
            self._written.read()
        self._remotes.beat()
        if self._actions.step():
            self._events.append(on.BelowEnded())
        events, self._events = self._events, []
        for action in self._machine.turn(events, self._turns.began_awake_at):
            self._actions.run(action)

    def _seconds_until_due(self) -> float | None:
        """Return the seconds until there is something to do without any event."""
        lengths = [self._machine.pause(self._turns.awake())]
        if (pause := self._actions.pause) is not None:
            lengths.append(pause)
        if self._lease.seconds:
            lengths.append(self._lease.seconds / 10)
        shortest = 0.0 if self._events else min(lengths)
        return None if shortest == math.inf else shortest

    def _wait_for_handles(self, pause_seconds: float | None) -> set[int]:
        poll = select.poll()
        for handle in (self._wake, *self._local.handles()):
            poll.register(handle, select.POLLIN)
        has_room = not any(sink.full for sink in self._output.distinct_sinks)
        if has_room:
            poll.register(self._written.handle, select.POLLIN)
        else:
            self._events.append(on.HostsUnheard())  # a host that is not read is not silent
        self._remotes.register(poll, reading=has_room)
        for sink in self._output.distinct_sinks:
            if sink.size:
                poll.register(sink.handle, select.POLLOUT)
        ready_handles = {
            handle
            for handle, _ in poll.poll(None if pause_seconds is None else pause_seconds * 1000)
        }
        for sink in self._output.distinct_sinks:
            if sink.handle in ready_handles:
                sink.pump()
                if sink.broken:
                    self._events.append(on.OutputUnread())
        return ready_handles

    def _drain(self) -> None:
        """Read the rest of all streams. All writers are gone."""
        self._written.close()
        self._local.close()
        instance = self.cause.instance if self.cause else -1
        if problem := self._failures.write(self.last_words, instance):
            self._output.warn(problem)
        self._output.flush()

    # What other hosts report (RemoteListener)

    def happened(self, event: Event) -> None:
        """Take an event of another host."""
        self._events.append(event)

    def wrote(self, index: int, number: int, data: bytes) -> None:
        """Take output of an instance on another host."""
        self._written.wrote(index, number, data)

    def reported(self, index: int, folder: str, files: Sequence[Any], more: int) -> None:
        """Take the folder of an instance's profile on another host, and its content."""
        self._written.reported(index, folder, files, more)

    def last_message(self, index: int, text: str) -> None:
        """Take what an instance on another host wrote about its end."""
        self._failures.record_error(index, text)

    def engine_wrote(self, data: bytes) -> None:
        """Take what a daemon of mpirun wrote."""
        self._events.append(engine_output_event(data, self._output))

    # Signals

    def _handle_signal(self, signal_number: int) -> None:
        if signal_number in FORWARDED_SIGNALS:
            self._events.append(on.ForwardSignal(signal_number))
        elif signal_number == signal.SIGTSTP:
            self._suspend()
        elif signal_number in ENDING_SIGNALS:
            self._events.append(on.EndSignal(signal_number, signal.Signals(signal_number).name))

    def _suspend(self) -> None:
        """Handle Ctrl-Z: stop the instances, then this process, until it is continued."""
        self._actions.suspend(signal.SIGSTOP)
        self._remotes.pause()
        stop()
        self._actions.suspend(signal.SIGCONT)
        self._remotes.go_on()
        self._events.append(on.HostsUnheard())
