"""All other hosts of a run, for the watching: what they say is passed on, what is due is done.

A host that hangs up before its end, or says nothing for SILENCE seconds, is lost, and its loss is
the cause of the run's end. How ends over several hosts go: every relay is told as the guardian is.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from podwright.launcher._exchange import pieces, streams
from podwright.launcher._exit_cause import Cause, described
from podwright.launcher._folder import RunFolder
from podwright.launcher._guardian import DAEMON, END, GONE, LISTENS, ORPHAN_GRACE, SIGNAL
from podwright.launcher._instance_wrapper import BY_MPIRUN, Event
from podwright.launcher._relay import (
    BEAT_EVERY,
    CLOCK,
    EVENTS,
    LAUNCH,
    LOST,
    PAUSE,
    PAYLOAD,
    REPORT,
    SAID,
    SILENCE,
    SYNC,
    SYNCED,
    WORDS,
)
from podwright.launcher._relay_protocol import OUTPUT, HostsUnusable
from podwright.launcher._relays import SLACK, Remote, beat

#: A run that lost a host may do better the next time.
LOST_HOST = 75
_NUMBERS = frozenset(streams(returns=True, traces=True).values())
#: Seconds that hosts have to hear of a pause.
_PAUSE = 1.0
#: How often each host is asked for its time at first; then with each beat.
_ASKED = 8
#: Seconds after the last word from a host until it has ended its instances, if it still runs.
FENCE = BEAT_EVERY + SILENCE + ORPHAN_GRACE + 1.0


class RemoteListener(Protocol):
    """Who is told what other hosts say: the watch over the launch."""

    def wrote(self, index: int, number: int, data: bytes) -> None:
        """An instance wrote to standard output (0) or error (1)."""
        ...

    def happened(self, events: Sequence[Event]) -> None:
        """What scripts of instances said."""
        ...

    def said(self, index: int, text: str) -> None:
        """What an instance wrote of its end."""
        ...

    def reported(self, index: int, folder: str, files: Sequence[Any], more: int) -> None:
        """Where an instance put its profile, and what is there (_profiling.listed)."""
        ...

    def engine_said(self, data: bytes) -> None:
        """What a daemon of mpirun's said."""
        ...

    def listens(self, host: str, count: int) -> None:
        """How many instances of a host can be told to move."""
        ...

    def instance_gone(self, index: int, code: int | None, problem: str) -> None:
        """The script of an instance has ended, or could not start (no code)."""
        ...

    def fail(self, cause: Cause, *, broken: bool = False) -> None:
        """The launch ends, for this cause. broken: a process of ours was ended by force."""
        ...


class Remotes:
    """The other hosts. names: the host of each instance, if there are several hosts."""

    def __init__(self, remotes: Sequence[Remote], names: Mapping[int, str] | None = None) -> None:
        self._all = tuple(remotes)
        self._names = names or {}
        self.ranks = frozenset(rank for remote in remotes for rank in remote.ranks)
        self._by_rank = {rank: remote for remote in remotes for rank in remote.ranks}
        self._beat = 0.0
        self._ending_at = 0.0
        self._unstepped: set[Remote] = set()
        self._watch: RemoteListener | None = None
        self._timed: Callable[[str, int, int, int], None] | None = None
        self._asked: dict[Remote, int] = {}
        #: When the last instance on a lost host has been ended by its own relay; by monotonic().
        self.fenced_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Any:
        return iter(self._all)

    def place(self, rank: int) -> str:
        """Where an instance is, for a sentence; nothing where there is one host."""
        return f" on {self._names[rank]}" if rank in self._names else ""

    def words(self, rank: int, program: Sequence[str]) -> list[str] | None:
        """How mpirun starts instances on the host of this one; None if that is this host."""
        remote = self._by_rank.get(rank)
        if remote is None:
            return None
        return [*remote.wrapper, BY_MPIRUN, *remote.restore, *program]

    def carry(self, payload: bytes) -> None:
        """Give every host the payload, before anything is started there. Raises HostsUnusable."""
        for piece in pieces(payload) if self._all else ():
            self.send(PAYLOAD, piece)
            while any(remote.line.waiting for remote in self._all):
                poll = select.poll()
                for remote in self._all:
                    if remote.line.waiting and not remote.line.closed:
                        poll.register(remote.line.writing, select.POLLOUT)
                poll.poll(BEAT_EVERY * 1000)
                for remote in self._all:
                    remote.line.pump()
                self.idle()

    # For the loop of Watch

    def watch(self, watch: RemoteListener) -> None:
        """From now on they count as heard, and `watch` is told."""
        self._watch = watch
        for remote in self._all:
            remote.heard = time.monotonic()

    def keep_time(self, timed: Callable[[str, int, int, int], None]) -> None:
        """From now on ask all hosts for their time. timed: is told of a host, when it was asked,
        the time there, and when that was heard; nanoseconds of CLOCK_BOOTTIME."""
        self._timed = timed
        self._ask_time(self._all)

    def _ask_time(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            if self._timed and not remote.ended:
                remote.line.send(CLOCK, time.clock_gettime_ns(time.CLOCK_BOOTTIME))

    def _time_said(self, remote: Remote, asked: int, there: int) -> None:
        if self._timed:
            self._timed(remote.host, asked, there, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        self._asked[remote] = self._asked.get(remote, 0) + 1
        if self._asked[remote] < _ASKED:
            self._ask_time([remote])

    def idle(self) -> None:
        """Between meeting and starting, every few seconds. Raises HostsUnusable for one lost."""
        now = time.monotonic()
        self._beat = beat(self._all, self._beat)
        for remote in self._all:
            remote.hear()
            if remote.line.closed or remote.silent(now):
                why = remote.why() if remote.line.closed else "it does not answer any more"
                raise HostsUnusable(f"host {remote.host} is lost: {why}", hosts=[remote.host])

    def tick(self) -> float:
        """Do what is due; seconds until something is due again."""
        now, before = time.monotonic(), self._beat
        self._beat = beat(self._all, self._beat)
        if self._beat != before:
            self._ask_time(self._all)
        for remote in self._all:
            if remote.silent(now):
                self._lose(remote, "it does not answer any more")
            elif self._ending_at and now > self._ending_at:
                self._lose(remote, "it did not end in time")
        return BEAT_EVERY / 2

    def register(self, poll: select.poll, *, reading: bool) -> None:
        """Wait for all of them; a host that is not listened to is not silent."""
        for remote in self._all:
            if not reading:
                remote.heard = time.monotonic()
            remote.register(poll, reading=reading)

    def hear(self, ready: set[int]) -> None:
        """Pass on what they said."""
        for remote in self._all:
            if remote.line.writing in ready:
                remote.line.pump()
            if remote.line.handle in ready and not remote.line.closed:
                for kind, *values in remote.hear():
                    self._heard(remote, kind, values)
            if remote.line.closed and not remote.ended:
                self._lose(remote, remote.why())

    def _heard(self, remote: Remote, kind: str, values: list[Any]) -> None:
        assert self._watch
        if kind == OUTPUT:
            index, stream, data = values
            if index in remote.ranks and stream in _NUMBERS:
                self._watch.wrote(index, stream, data)
        elif kind == EVENTS:
            self._watch.happened([Event(*e) for e in values[0] if e[0] in remote.ranks])
        elif kind == SAID and values[0] in remote.ranks:
            self._watch.said(values[0], values[1])
        elif kind == CLOCK:
            self._time_said(remote, *values)
        elif kind == REPORT and values[0] in remote.ranks:
            self._watch.reported(*values)
        elif kind == LISTENS:
            self._watch.listens(remote.host, values[0])
        elif kind == WORDS:
            self._watch.engine_said(values[0].encode())
        elif kind == GONE and values[0] == DAEMON:
            _, code, problem = values
            if code != 0:
                how = problem or described(code if code >= 0 else 128 - code)
                text = f"mpirun's daemon on {remote.host} {how}"
                self._watch.fail(Cause(1, text, again=True), broken=True)
        elif kind == GONE:
            self._watch.instance_gone(*values)
        elif kind == SYNCED:
            self._unstepped.discard(remote)
        elif kind == LOST:
            cause = Cause(LOST_HOST, f"host {remote.host}: {values[0]}", again=True)
            self._watch.fail(cause, broken=True)

    def _lose(self, remote: Remote, why: str) -> None:
        if remote.ended:
            return
        assert self._watch
        remote.ended = remote.lost = True
        remote.line.closed = True
        self._unstepped.discard(remote)
        self.fenced_at = max(self.fenced_at, remote.heard + FENCE)
        left = ", ".join(map(str, remote.ranks))
        text = f"host {remote.host} is lost (instances {left}): {why}"
        self._watch.fail(Cause(LOST_HOST, text, again=True), broken=True)

    def send(self, *message: Any) -> None:
        """Tell all of them."""
        for remote in self._all:
            if not remote.ended:
                remote.line.send(*message)

    def pause(self) -> None:
        """Stop the instances; nothing will be heard from us for a while."""
        self.send(SIGNAL, int(signal.SIGSTOP))
        self.send(PAUSE)  # holds until the next word
        until = time.monotonic() + _PAUSE
        while time.monotonic() < until and any(remote.line.waiting for remote in self._all):
            for remote in self._all:
                remote.line.pump()
            time.sleep(0.01)

    def go_on(self) -> None:
        """After a pause: all count as heard, and the instances go on."""
        self.woke()
        self.send(SIGNAL, int(signal.SIGCONT))

    def woke(self) -> None:
        """We stood still, and could hear nobody: all count as heard."""
        for remote in self._all:
            remote.heard = time.monotonic()

    def end(self, patience: float, grace: float, held: bool) -> None:
        """End what runs there, as a guardian ends it; and wait no longer than that takes."""
        if not self._all:
            return
        self.send(END, patience, grace, held)
        at = time.monotonic() + patience + grace + SLACK
        self._ending_at = min(self._ending_at or at, at)

    def step(self) -> None:
        """Ask all to say what they know; `in_step` once they have."""
        self._unstepped = {remote for remote in self._all if not remote.ended}
        self.send(SYNC)

    @property
    def in_step(self) -> bool:
        """Whether everything said before `step` has been heard."""
        return not self._unstepped

    @property
    def quiet(self) -> bool:
        """Whether no instance is left on any of them."""
        return all(remote.quiet or remote.ended for remote in self._all)

    @property
    def ended(self) -> bool:
        """Whether nothing of the run is left on any of them."""
        return all(remote.ended for remote in self._all)

    def sweepers(self, *, lost: bool) -> dict[str, list[str]]:
        """By host, what sees to it that nothing is left there; of lost hosts alone, or of all."""
        return {r.host: r.sweeper for r in self._all if r.sweeper and (r.lost or not lost)}

    def launch(self, folder: RunFolder, number: int) -> None:
        """Start what mpirun wants on a host: a file in the run's folder says it."""
        assert self._watch
        with open(folder.here(folder.file(f"daemon.{number}")), encoding="utf-8") as file:
            host, _, command = file.read().partition("\n")
        for remote in self._all:
            if remote.host == host:
                remote.line.send(LAUNCH, DAEMON, command)
                return
        self._watch.fail(Cause(1, f"mpirun wants to start a daemon on {host}, which is no host"))

    def close(self, seconds: float = 3.0) -> None:
        """Hang up."""
        for remote in self._all:
            remote.line.close()
        until = time.monotonic() + seconds
        for remote in self._all:
            remote.close(max(until - time.monotonic(), 0.0))


#: All runs on this host alone.
NOWHERE = Remotes([])
