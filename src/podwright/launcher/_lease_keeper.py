"""The keeper: between poprun and its guardian; it outlives either, and keeps the lease.

It is forked from poprun, forks the guardian, and lives in a session of its own, where no Ctrl-Z
stops it: a poprun that is stopped keeps its partition. It is no part of what it watches: when the
guardian is gone, with or without the kernel's help, it sees to it that nothing is left below, and
so knows. When poprun is gone too, it gives the lease back; nobody else could say that the devices
are free. It never gives back what it has not seen to the end.

poprun says HOLD, HOSTS, MOVABLE, FREE, END; the keeper says GUARDED first, then LOST, KEPT, MOVE,
CLEARED. If it
is told that the lease is over, or an end takes longer than it may, it kills the guardian, whoever
is stopped.

The client is loaded when the first renewal falls due: short runs never need it here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from podwright.errors import Unavailable
from podwright.hosts import NOT_HELD, HeldChild, become_subreaper, name_process, reap, see_end
from podwright.launcher._channel import Channel
from podwright.launcher._folder import RunFolder
from podwright.launcher._guardian import (
    END,
    LAST_WORDS,
    ORPHAN_GRACE,
    Ending,
    fork_guardian,
    placed,
)
from podwright.launcher._stopped import boottime

if TYPE_CHECKING:
    from podwright.launcher._fork_server import ForkServer
    from podwright.launcher._lease import Keeping

HOLD, HOSTS, FREE = "hold", "hosts", "free"
GUARDED, LOST, KEPT, CLEARED = "guarded", "lost", "kept", "cleared"
#: poprun: the launch can be moved, and what that loses. The keeper: it is asked to, until when.
MOVABLE, MOVE = "movable", "move"
#: Seconds from one renewal to the next, and to the next try of one that failed.
RENEW_EVERY = 3.0
RETRY_EVERY = 1.0
#: Seconds beyond what a guardian was given for an end; then it is killed.
SLACK = 3.0
#: Seconds that it goes on waiting for a poprun that has freed it.
_PATIENCE = 5.0


class Means(Protocol):
    """What a keeper does, beside watching, for a poprun that cannot."""

    def open(self, holding: Sequence[object]) -> Keeping:
        """The caller's side of what poprun said that it holds."""
        ...

    def gone(self, sweepers: Mapping[str, Sequence[str]]) -> list[str] | None:
        """Sweep the other hosts. The hosts of the launch on which nothing is left; None: all."""
        ...


class KeeperProcess(NamedTuple):
    """What poprun has of a run's watchers: the keeper's pid, the line to it, the guardian's.

    inner: the guardian's pid, and what holds its instances.
    """

    pid: int
    channel: Channel
    guardian: Channel
    inner: HeldChild = HeldChild(0, NOT_HELD, "the keeper was ended")

    def hold(self, holding: Sequence[object]) -> None:
        """Keep this from now on; give it back if poprun is gone."""
        self.channel.send(HOLD, *holding)

    def hosts(self, sweepers: Mapping[str, Sequence[str]]) -> None:
        """If poprun is gone, these have to be swept."""
        self.channel.send(HOSTS, {host: [*words] for host, words in sweepers.items()})

    def movable(self, seconds: float) -> None:
        """All instances can be told to end: a move would lose so many seconds."""
        self.channel.send(MOVABLE, seconds)

    def close(self) -> None:
        """Keep nothing any more, and end. The guardian has to be at its end."""
        self.channel.send(FREE)
        self.channel.close()
        self.guardian.close()
        see_end(self.pid, _PATIENCE)


def start_keeper(
    folder: RunFolder,
    output: int,
    means: Means,
    *,
    close: Sequence[int] = (),
    held: bool = True,
    server: ForkServer | None = None,
) -> tuple[KeeperProcess, RunFolder]:
    """Fork the keeper of a run, and the guardian below it; and where the run's folder is now.

    output: where mpirun's own words go. close: poprun's alone. held: a PID namespace is wanted.
    server: what forks it, if not this process. Raises Unavailable if that is gone.
    """
    ours, theirs = Channel.pair()
    ours_too, guardians = Channel.pair()
    asked = (folder.name, folder.path, folder.shared_memory)
    handles = [*theirs.handles, *guardians.handles, output, *folder.locks]
    try:
        pid = server.fork(asked, handles) if server else os.fork()
    except (OSError, Unavailable):
        folder.remove()
        raise
    if not pid:
        code = 1
        try:
            for handle in (*ours.handles, *ours_too.handles, *close):
                os.close(handle)
            code = keep(means, asked, handles, held=held)
        finally:
            os._exit(code)
    theirs.close()
    guardians.close()
    kept = KeeperProcess(pid, ours, ours_too)
    if said := ours.one():
        kept = kept._replace(inner=HeldChild(*said[1:]))
        folder = folder._replace(group=kept.inner.group)
    return kept, placed(ours_too, folder, kept.inner.pid)


def keep(means: Means, asked: Sequence[str], handles: Sequence[int], *, held: bool) -> int:
    """Be the keeper of a run, in a process forked for it; its exit code.

    asked: the run's name and folders. handles: both lines, the output, the folders' locks.
    """
    theirs, guardians = Channel(*handles[:2]), Channel(*handles[2:4])
    output, *locks = handles[4:]
    name, path, memory = asked
    folder = RunFolder(name, path, memory, tuple(locks))
    os.setsid()
    name_process("podwright-keep")
    become_subreaper()
    leash, end = os.pipe()
    inner = fork_guardian(
        guardians,
        folder,
        output,
        close=[*theirs.handles, end],
        leash=leash,
        held=held,
    )
    guardians.close()
    os.close(leash)
    os.close(output)
    theirs.send(GUARDED, *inner)
    folder = folder._replace(group=inner.group)
    return _Keeper(theirs, folder, inner.pid, means).run()


class Renewals:
    """When a lease is to be renewed. The clock goes on while a laptop sleeps (CLOCK_BOOTTIME)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock() + RENEW_EVERY

    def now(self) -> None:
        """One is due: there is news."""
        self._next = self._clock()

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self._clock() >= self._next

    def tried(self, *, well: bool) -> None:
        """One has been tried."""
        self._next = self._clock() + (RENEW_EVERY if well else RETRY_EVERY)


class _Keeper:
    def __init__(
        self,
        channel: Channel,
        folder: RunFolder,
        guardian: int,
        means: Means,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.channel = channel
        self.folder = folder
        self.guardian = guardian
        self.means = means
        self.sweepers: dict[str, list[str]] = {}
        self.holding: Sequence[object] = ()
        self.keeping: Keeping | None = None
        self.renewals = Renewals(boottime)
        self.lost = self.cleared = False
        self.move_seconds = 0.0
        self.grace = ORPHAN_GRACE
        self.kill_at: float | None = None
        self.ending: Ending | None = None

    def run(self) -> int:
        wake, poke = os.pipe()
        for handle in (wake, poke):
            os.set_blocking(handle, False)
        for number in (*_DEAF, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(poke, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(self.channel.handle, select.POLLIN)
        while True:
            ready = {handle for handle, _ in poll.poll(self._pause() * 1000)}
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 512)
            heard = self.channel.handle in ready
            if self.turn(heard=heard):
                return 0
            if heard and self.channel.closed:
                poll.unregister(self.channel.handle)

    def turn(self, *, heard: bool) -> bool:
        """One turn of its loop; True: it was the last. heard: there is something on the line."""
        if heard:
            self._listen()
            if self.channel.closed:
                self._end(0.0, ORPHAN_GRACE)
        reap(self._ended)
        self._step()
        if self.cleared and self.channel.closed:
            self.folder.remove()
            self._give_back()
            return True
        if self.holding and not self.lost and self.renewals.due:
            self._renew()
        return False

    def _pause(self) -> float:
        # poll(2) does not count the time in which the machine sleeps, so it is asked often.
        return min(1.0, self.ending.pause if self.ending and not self.cleared else 1.0)

    def _listen(self) -> None:
        for kind, *values in self.channel.receive():
            if kind == HOLD:
                self.holding, self.lost = values, False
                self.renewals = Renewals(boottime)
            elif kind == HOSTS:
                self.sweepers = values[0]
            elif kind == MOVABLE:
                self.move_seconds = values[0]
                self.renewals.now()
            elif kind == FREE:
                self.holding, self.sweepers = (), {}
            elif kind == END:
                self._end(*values)

    def _end(self, patience: float, grace: float) -> None:
        """An end has begun: what is not over when it should be, is ended by force."""
        at = self.clock() + patience + grace + LAST_WORDS + SLACK
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)
        self.grace = min(self.grace, grace)
        if self.ending:
            self.ending.sooner(patience, grace)

    def _ended(self, pid: int, code: int) -> None:
        if pid == self.guardian:
            self.guardian = 0

    def _step(self) -> None:
        if self.cleared:
            return
        if self.guardian:
            if self.kill_at is not None and self.clock() > self.kill_at:
                os.kill(self.guardian, signal.SIGKILL)
            return
        # In a PID namespace nothing is left by now: its first process is gone after all others.
        self.ending = self.ending or Ending(
            os.getpid(), 0.0, self.grace, group=self.folder.group, clock=self.clock
        )
        if self.ending.step():
            reap(self._ended)
            self.cleared = True
            self.channel.send(CLEARED)

    def _renew(self) -> None:
        self.keeping = self.keeping or self.means.open(self.holding)
        # Once all have ended nobody can be told any more.
        over = self.keeping.renew(0.0 if self.cleared else self.move_seconds)
        self.renewals.tried(well=self.keeping.well)
        if over:
            self.lost = True
            self.channel.send(LOST, *over)
            self._end(0.0, ORPHAN_GRACE)
        elif self.keeping.well:
            self.channel.send(KEPT)
            if self.keeping.move:
                self.channel.send(MOVE, *self.keeping.move)

    def _give_back(self) -> None:
        gone = self.means.gone(self.sweepers) if self.sweepers else None
        if self.holding and not self.lost:
            (self.keeping or self.means.open(self.holding)).give_back(gone)


_DEAF = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
