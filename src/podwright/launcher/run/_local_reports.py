"""Reads what the processes of poprun's own host report, as events.

Scripts in front of instances write into the status pipe, mpirun writes text, and the guardian and
the keeper send messages. The order in which these are read does not decide who is blamed (_blame).
But an instance's own report has to come before the end of its process, which the guardian reports.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from podwright.hosts import outside
from podwright.launcher.instances._instance_wrapper import StatusPipe
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.run._attempt import Attempt
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._guardian import (
    ENDED,
    ENGINE_COMMAND_KIND,
    GONE,
    LISTENS,
    QUIET,
    STARTED,
    SYNCED,
)
from podwright.launcher.watchers._guardian_channel import Channel
from podwright.launcher.watchers._launch_events import GUARDIAN, KEEPER, Event
from podwright.launcher.watchers._lease_clock import LeaseClock
from podwright.launcher.watchers._lease_keeper import CLEARED, FAULTY, KEPT, LOST, MOVE

_READ_CHUNK_BYTES = 65536
_INSTANCE_EVENT_BY_KIND: Mapping[str, Callable[[int, int], Event]] = {
    "start": on.InstanceStarted,
    "end": on.InstanceEnded,
}


def outside_pid(pid: int, output: Output) -> int:
    """Return the number that an instance's process has outside of its namespace, for the log.

    The search costs time, so the number stays unchanged unless a log shows it.
    """
    return outside(os.getpid(), pid) if output.verbosity else pid


def engine_output_event(engine_output: bytes, output: Output) -> Event:
    """Log what mpirun, or one of its daemons, wrote, and return the event."""
    output.log("D", engine_output.decode(errors="replace"))
    return on.EngineWrote(engine_output)


class LocalReports:
    """Reads the status pipe, mpirun's output, the guardian and the keeper of one attempt."""

    def __init__(self, attempt: Attempt, output: Output, lease: LeaseClock) -> None:
        self._attempt, self._output, self._lease = attempt, output, lease
        self._guardian, self._keeper = attempt.keeper.guardian, attempt.keeper.channel
        self._status = StatusPipe(attempt.folder)
        self._words = attempt.words

    def handles(self) -> Iterator[int]:
        """The descriptors to poll."""
        yield self._status.handle
        if self._words >= 0:
            yield self._words
        for channel in (self._guardian, self._keeper):
            if not channel.closed:
                yield channel.handle

    def read(self, *, finished: bool) -> list[Event]:
        """Return the new events. finished: nothing is left here, so the guardian may end.

        A watcher that is gone explains what was read before, so watchers are read last. An
        instance's own report comes before how its process ended. So after a message of a watcher,
        the status pipe is read once more, and its events come first.
        """
        events = [*self._read_status(), *self.read_mpirun_output()]
        watcher_events = [*self._read_guardian(finished), *self._read_keeper()]
        if watcher_events:
            events += [*self._read_status(), *self.read_mpirun_output()]
        return events + watcher_events

    def close(self) -> list[Event]:
        """Return the rest of mpirun's output as events. All writers are gone."""
        events = list(self.read_mpirun_output())
        if self._words >= 0:
            os.close(self._words)
        self._status.close()
        return events

    def read_mpirun_output(self) -> Iterator[Event]:
        """Return what mpirun and its daemons have written."""
        if self._words < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._words, _READ_CHUNK_BYTES):
                yield engine_output_event(data, self._output)
            os.close(self._words)
            self._words = -1

    def _read_status(self) -> Iterator[Event]:
        for rank, kind, number in self._status.read():
            if kind == "daemon":
                if problem := self._attempt.remotes.launch(self._attempt.folder, number):
                    yield on.RelayFailed(1, problem)
            elif kind in _INSTANCE_EVENT_BY_KIND:
                yield _INSTANCE_EVENT_BY_KIND[kind](rank, number)

    def _read_guardian(self, finished: bool) -> Iterator[Event]:
        channel = self._guardian
        end_expected = channel.closed or finished
        for message_kind, *values in _ready_messages(channel):
            if message_kind == STARTED:
                pid = outside_pid(values[0], self._output)
                self._output.log("I", f"Waiting for mpirun (PID {pid})")
                yield on.EngineStarted(values[0])
            elif message_kind == GONE:
                rank, exit_code, problem = values
                is_engine = rank == ENGINE_COMMAND_KIND
                yield (
                    on.EngineEnded(exit_code, problem)
                    if is_engine
                    else on.ScriptEnded(rank, exit_code, problem)
                )
            elif message_kind == LISTENS:
                yield on.ListenersCounted("", values[0])
            elif message_kind == SYNCED:
                yield on.LivenessAnswered(GUARDIAN, values[0])
            elif message_kind == QUIET:
                yield on.GuardianQuiet()
            elif message_kind == ENDED:
                yield on.GuardianFinished()
                end_expected = True
        if channel.closed and not end_expected:
            yield on.WatcherGone(GUARDIAN)

    def _read_keeper(self) -> Iterator[Event]:
        channel = self._keeper
        was_closed = channel.closed
        for message_kind, *values in _ready_messages(channel):
            if message_kind == KEPT:
                self._lease.renewed()
            elif message_kind == LOST:
                self._lease.end(values[0], values[1])
                yield on.LeaseLost()
            elif message_kind == MOVE:
                yield on.MoveRequested(*values)
            elif message_kind == FAULTY:
                yield on.PartitionFaulty(*values)
            elif message_kind == SYNCED:
                yield on.LivenessAnswered(KEEPER, values[0])
            elif message_kind == CLEARED:
                yield on.KeeperCleared()
        if channel.closed and not was_closed:
            yield on.WatcherGone(KEEPER)


def _ready_messages(channel: Channel) -> list[tuple[Any, ...]]:
    return [] if channel.closed or not _is_readable(channel.handle) else channel.receive()


def _is_readable(handle: int) -> bool:
    """Return whether there is something to read, or the other end is gone."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))
