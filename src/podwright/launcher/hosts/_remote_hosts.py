"""All other hosts of a run: messages to their relays, and messages from these, as events.

A host is lost when its connection closes before its end, or when it is silent for SILENCE seconds.
Its loss is the cause of the run's end. _launch_state_machine makes this decision and all others. At
an end every relay gets the same messages as the guardian of poprun's host.
"""

from __future__ import annotations

import contextlib
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from podwright.launcher.hosts._host_states import HOST_END_DELAY_S
from podwright.launcher.hosts._poprun_liveness import HEARTBEAT_INTERVAL_S
from podwright.launcher.hosts._relay import (
    CLOCK,
    EVENTS,
    INPUT_TAKEN,
    LAUNCH,
    LOST,
    PAUSE,
    PAYLOAD,
    REPORT,
    SAID,
    UNHEARD,
    WORDS,
)
from podwright.launcher.hosts._relay_connections import Remote, beat, unheard_reason
from podwright.launcher.hosts._relay_protocol import OUTPUT, HostsUnusable
from podwright.launcher.instances._function_exchange import pieces, streams
from podwright.launcher.instances._instance_input import INPUT_STREAM, InputSource
from podwright.launcher.instances._instance_wrapper import RANK_BY_MPIRUN
from podwright.launcher.instances._run_folder import RunFolder
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._guardian import (
    DAEMON_COMMAND_KIND,
    ENDED,
    GONE,
    LISTENS,
    QUIET,
    SIGNAL,
    SYNCED,
)
from podwright.launcher.watchers._launch_events import Event
from podwright.launcher.watchers._stop_detection import LoopTurns

_STREAM_NUMBERS = frozenset(streams(returns=True, traces=True).values())
#: Seconds between two calls of `idle` while something else is waited for.
_IDLE_INTERVAL_S = 0.5
#: Seconds in which the hosts have to receive a pause.
_PAUSE_SEND_TIMEOUT_S = 1.0
#: How often each host is asked for its time at the start. Later it is asked with each beat.
_INITIAL_TIME_REQUESTS = 8
_INSTANCE_EVENT_BY_KIND: Mapping[str, Callable[[int, int], Event]] = {
    "start": on.InstanceStarted,
    "end": on.InstanceEnded,
}


class RemoteListener(Protocol):
    """Receives what other hosts report; the watch over the launch implements it."""

    def happened(self, event: Event) -> None:
        """Take an event of another host."""
        ...

    def wrote(self, index: int, number: int, data: bytes) -> None:
        """Take an instance's output: standard output (0) or standard error (1)."""
        ...

    def last_message(self, index: int, text: str) -> None:
        """Take what an instance wrote about its end."""
        ...

    def reported(self, index: int, folder: str, files: Sequence[Any], more: int) -> None:
        """Take the folder of an instance's profile, and its content (_profiling.listed)."""
        ...

    def engine_wrote(self, data: bytes) -> None:
        """Take what a daemon of mpirun wrote."""
        ...


class Remotes:
    """The other hosts. names: the host of each instance, if there are several hosts."""

    def __init__(
        self,
        remotes: Sequence[Remote],
        names: Mapping[int, str] | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        """turns: those of the loop that calls `idle`."""
        self._all = tuple(remotes)
        self._idle_turns = turns or LoopTurns()
        self._names = names or {}
        self.ranks = frozenset(rank for remote in remotes for rank in remote.ranks)
        self._by_rank = {rank: remote for remote in remotes for rank in remote.ranks}
        self._beat = 0.0
        self._watch: RemoteListener | None = None
        self._timed: Callable[[str, int, int, int], None] | None = None
        self._time_requests: dict[Remote, int] = {}
        self._input: InputSource | None = None
        #: The seconds that the slowest login took.
        self.login_s = 0.0
        #: The time by monotonic() at which the relays of lost hosts have ended their last instance.
        self.fenced_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Remote]:
        return iter(self._all)

    @property
    def places(self) -> Mapping[int, str]:
        """The host of each instance, for messages. Empty when there is only one host."""
        return self._names

    @property
    def by_host(self) -> dict[str, tuple[int, ...]]:
        """The instances of each host."""
        return {remote.host: remote.ranks for remote in self._all}

    def words(self, rank: int, program: Sequence[str]) -> list[str] | None:
        """Return how mpirun starts instances on the host of this rank; None if that is this
        host.
        """
        remote = self._by_rank.get(rank)
        if remote is None:
            return None
        return [*remote.wrapper, RANK_BY_MPIRUN, *remote.restore, *program]

    def send_payload(self, payload: bytes) -> None:
        """Send the payload to every host, before anything is started there. Raises
        HostsUnusable.
        """
        for payload_piece in pieces(payload) if self._all else ():
            self.send(PAYLOAD, payload_piece)
            while any(remote.line.waiting for remote in self._all):
                poll = select.poll()
                for remote in self._all:
                    if remote.line.waiting and not remote.line.closed:
                        poll.register(remote.line.writing, select.POLLOUT)
                poll.poll(HEARTBEAT_INTERVAL_S * 1000)
                for remote in self._all:
                    remote.line.pump()
                self.idle()

    # For the loop of Watch

    def watch(self, listener: RemoteListener) -> None:
        """Count all hosts as heard now, and report to `listener` from now on."""
        self._watch = listener
        for remote in self._all:
            remote.heard = time.monotonic()

    def keep_time(self, on_time_answer: Callable[[str, int, int, int], None]) -> None:
        """Ask all hosts for their time from now on.

        on_time_answer: is called with the host, the time of the request, the time on the host, and
        the time of the answer. Times are nanoseconds of CLOCK_BOOTTIME.
        """
        self._timed = on_time_answer
        self._ask_time(self._all)

    def _ask_time(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            if self._timed and not remote.finished:
                remote.line.send(CLOCK, time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def _take_clock_answer(self, remote: Remote, sent_at: int, remote_time: int) -> None:
        if self._timed:
            self._timed(
                remote.host, sent_at, remote_time, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            )
        self._time_requests[remote] = self._time_requests.get(remote, 0) + 1
        if self._time_requests[remote] < _INITIAL_TIME_REQUESTS:
            self._ask_time([remote])

    def idle(self) -> None:
        """Keep the connections alive between connecting and the start. Call it every few seconds.

        Raises HostsUnusable for a host that was lost.
        """
        if self._idle_turns.begin(HEARTBEAT_INTERVAL_S):
            for remote in self._all:
                remote.heard = self._idle_turns.awake()
        self._beat = beat(self._all, self._beat)
        poll = select.poll()
        self.register(poll, reading=True)
        ready_fds = {fd for fd, _ in poll.poll(0)}
        for remote in self._all:
            if remote.line.handle in ready_fds and not remote.line.closed:
                remote.hear()
            if remote.line.closed or remote.silent(self._idle_turns.began_awake_at):
                reason = remote.reason() if remote.line.closed else "it does not answer any more"
                raise HostsUnusable(f"host {remote.host} is lost: {reason}", hosts=[remote.host])

    @contextlib.contextmanager
    def kept_alive(self) -> Iterator[Callable[[], None]]:
        """Do what `idle` does in a thread, while this one waits for somebody else.

        Yields a function that raises HostsUnusable once a host was lost. The end raises it too.
        Nobody else may use the connections within.
        """
        if not self._all:
            yield lambda: None
            return
        import threading  # 2 ms that a launch on one host does not need

        wait_ended = threading.Event()
        problems: list[HostsUnusable] = []

        def check() -> None:
            if problems:
                raise problems[0]

        def keep_alive() -> None:
            try:
                while not wait_ended.wait(_IDLE_INTERVAL_S):
                    self.idle()
            except HostsUnusable as error:
                problems.append(error)

        thread = threading.Thread(target=keep_alive, name="podwright-beat", daemon=True)
        thread.start()
        try:
            yield check
        finally:
            wait_ended.set()
            thread.join()
        check()

    def beat(self) -> None:
        """Send all hosts a sign of life, and ask for their time, when that is due."""
        last_beat = self._beat
        self._beat = beat(self._all, self._beat)
        if self._beat != last_beat:
            self._ask_time(self._all)

    def pass_input(self, folder: RunFolder) -> None:
        """Send what comes into the pipe of a run's input to the host of instance 0, from now on."""
        line = self._by_rank[0].line
        self._input = InputSource(folder, lambda data: line.send_output(0, INPUT_STREAM, data))

    def register(self, poll: select.poll, *, reading: bool) -> None:
        """Register all connections with a poll."""
        if self._input and self._input.wanted:
            poll.register(self._input.handle, select.POLLIN)
        for remote in self._all:
            remote.register(poll, reading=reading)

    def hear(self, ready_fds: set[int]) -> None:
        """Read what the hosts have sent, and pass it on."""
        assert self._watch
        if self._input and self._input.handle in ready_fds:
            self._input.read()
        for remote in self._all:
            if remote.line.writing in ready_fds:
                remote.line.pump()
            if remote.line.handle in ready_fds and not remote.line.closed:
                messages = remote.hear()
                self._watch.happened(on.HostHeard(remote.host))
                for kind, *values in messages:
                    self._take_remote_message(remote, kind, values)
            if remote.line.closed and not remote.finished:
                remote.finished = True
                self._watch.happened(on.HostCut(remote.host, remote.reason()))

    def _take_remote_message(
        self, remote: Remote, message_kind: str, message_values: list[Any]
    ) -> None:
        assert self._watch
        if message_kind == OUTPUT:
            rank, stream, output = message_values
            if rank in remote.ranks and stream in _STREAM_NUMBERS:
                self._watch.wrote(rank, stream, output)
        elif message_kind == SAID and message_values[0] in remote.ranks:
            self._watch.last_message(message_values[0], message_values[1])
        elif message_kind == INPUT_TAKEN and self._input:
            self._input.free(message_values[0])
        elif message_kind == CLOCK:
            self._take_clock_answer(remote, *message_values)
        elif message_kind == REPORT and message_values[0] in remote.ranks:
            self._watch.reported(*message_values)
        elif message_kind == WORDS:
            self._watch.engine_wrote(message_values[0].encode())
        else:
            for event in _events_of_message(remote, message_kind, message_values):
                self._watch.happened(event)

    def hang_up(self, host: str) -> None:
        """Close the connection to a lost host. The host has to be swept later."""
        for remote in self._all:
            if remote.host == host:
                remote.finished = remote.lost = True
                remote.line.closed = True
                self.fenced_at = max(self.fenced_at, remote.heard + HOST_END_DELAY_S)

    def send(self, *message: Any) -> None:
        """Send a message to all hosts."""
        for remote in self._all:
            if not remote.finished:
                remote.line.send(*message)

    def pause(self) -> None:
        """Stop the instances, and announce that poprun will be silent for a while."""
        self.send(SIGNAL, int(signal.SIGSTOP))
        self.send(PAUSE)  # holds until the next message
        deadline = time.monotonic() + _PAUSE_SEND_TIMEOUT_S
        while time.monotonic() < deadline and any(remote.line.waiting for remote in self._all):
            for remote in self._all:
                remote.line.pump()
            time.sleep(0.01)

    def go_on(self) -> None:
        """Continue the instances after a pause."""
        self.send(SIGNAL, int(signal.SIGCONT))

    def sweepers(self, *, lost: bool) -> dict[str, list[str]]:
        """Return the command that sweeps each host. lost: only those of lost hosts."""
        return {
            remote.host: remote.sweeper
            for remote in self._all
            if remote.sweeper and (remote.lost or not lost)
        }

    def launch(self, folder: RunFolder, daemon_number: int) -> str:
        """Start mpirun's daemon on a host, as a file in the run's folder describes it.

        Returns what is wrong with the file; empty if nothing is.
        """
        with open(
            folder.local_path(folder.file(f"daemon.{daemon_number}")), encoding="utf-8"
        ) as file:
            host, _, command = file.read().partition("\n")
        for remote in self._all:
            if remote.host == host:
                remote.line.send(LAUNCH, DAEMON_COMMAND_KIND, command)
                return ""
        return f"mpirun wants to start a daemon on {host}, which is not a host"

    def close(self, seconds: float = 3.0) -> None:
        """Close all connections."""
        if self._input:
            self._input.close()
        started_remotes = [remote for remote in self._all if remote.started]
        for remote in started_remotes:
            remote.line.close()
        deadline = time.monotonic() + seconds
        for remote in started_remotes:
            remote.close(max(deadline - time.monotonic(), 0.0))


def _events_of_message(
    remote: Remote, message_kind: str, message_values: list[Any]
) -> Iterator[Event]:
    """Convert a message of a relay into events of the state machine."""
    if message_kind == EVENTS:
        for rank, event_kind, event_value in message_values[0]:
            if rank in remote.ranks and event_kind in _INSTANCE_EVENT_BY_KIND:
                yield _INSTANCE_EVENT_BY_KIND[event_kind](rank, event_value)
    elif message_kind == GONE and message_values[0] == DAEMON_COMMAND_KIND:
        yield on.DaemonEnded(remote.host, message_values[1], message_values[2])
    elif message_kind == GONE and message_values[0] in remote.ranks:
        yield on.ScriptEnded(*message_values)
    elif message_kind == LISTENS:
        yield on.ListenersCounted(remote.host, message_values[0])
    elif message_kind == SYNCED:
        yield on.LivenessAnswered(remote.host, message_values[0])
    elif message_kind == LOST:
        yield on.HostBroken(remote.host, message_values[0])
    elif message_kind == UNHEARD:
        yield on.PoprunUnheard(remote.host, unheard_reason(message_values[0]))
    elif message_kind == QUIET:
        yield on.HostQuiet(remote.host)
    elif message_kind == ENDED:
        yield on.HostFinished(remote.host)


#: For a run whose instances are all on this host.
NOWHERE = Remotes([])
