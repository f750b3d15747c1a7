"""The keeper: a process between poprun and its guardian that outlives either, and keeps the lease.

It is forked from poprun and forks the guardian. It lives in a session of its own, where no Ctrl-Z
stops it: a poprun that is stopped keeps its partition. It is not one of the processes that it
watches. When the guardian is gone, the keeper ends whatever the kernel has left below, so it knows
that nothing is left. When poprun is gone too, it gives the lease back, since no other process could
tell that the devices are free. It gives nothing back before it has seen the end.

poprun sends HOLD, HOSTS, MOVABLE, SYNC, FREE, END. The keeper sends GUARDED first, then LOST, KEPT,
MOVE, SYNCED, CLEARED. If the lease is over, or an end takes longer than permitted, it kills the
guardian, whichever process is stopped.

The client is loaded when the first renewal is due. A short run never loads it here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from podwright.errors import PodwrightError
from podwright.hosts import NOT_HELD, HeldChild, become_subreaper, name_process, reap, see_end
from podwright.launcher.instances._run_folder import RunFolder
from podwright.launcher.watchers._guardian import (
    END,
    MPIRUN_END_WAIT_S,
    ORPHAN_GRACE_S,
    SYNC,
    SYNCED,
    Ending,
    fork_guardian,
    placed,
)
from podwright.launcher.watchers._guardian_channel import Channel
from podwright.launcher.watchers._stop_detection import boottime

if TYPE_CHECKING:
    from podwright.launcher.watchers._fork_server import ForkServer
    from podwright.launcher.watchers._lease import KeptHolding

HOLD, HOSTS, FREE = "hold", "hosts", "free"
GUARDED, LOST, KEPT, CLEARED = "guarded", "lost", "kept", "cleared"
#: From poprun: the launch can be moved, and what that loses. From the keeper: a request to move,
#: with its deadline.
MOVABLE, MOVE = "movable", "move"
FAULTY = "faulty"
#: Seconds from one renewal to the next, and to the repetition of one that failed.
RENEW_INTERVAL_S = 3.0
RENEW_RETRY_INTERVAL_S = 1.0
#: Seconds beyond the time that a guardian was given for an end; after these it is killed.
SLACK = 3.0
#: Seconds for which it still waits for poprun after FREE.
_POPRUN_END_PATIENCE_S = 5.0


class KeeperMeans(Protocol):
    """What a keeper can do besides watching, for a poprun that is gone or stopped."""

    def open(self, holding: Sequence[object]) -> KeptHolding:
        """Return the object that renews and releases what poprun holds."""
        ...

    def cleared_hosts(
        self, sweepers: Mapping[str, Sequence[str]], login_s: float
    ) -> list[str] | None:
        """Sweep the other hosts. Returns the hosts on which nothing is left. None: all hosts."""
        ...


class KeeperProcess(NamedTuple):
    """poprun's view of a run's watchers: the keeper's pid, and the connections to keeper and
    guardian.

    inner: the guardian's pid, and what contains its instances.
    """

    pid: int
    channel: Channel
    guardian: Channel
    inner: HeldChild = HeldChild(0, NOT_HELD, "the keeper was ended")

    def hold(self, lease_values: Sequence[object]) -> None:
        """Let the keeper renew this from now on, and give it back if poprun is gone."""
        self.channel.send(HOLD, *lease_values)

    def hosts(self, sweep_commands: Mapping[str, Sequence[str]], login_s: float) -> None:
        """Tell the keeper which hosts it has to sweep if poprun is gone."""
        commands = {host: [*command] for host, command in sweep_commands.items()}
        self.channel.send(HOSTS, commands, login_s)

    def movable(self, lost_seconds: float) -> None:
        """Tell the keeper that all instances can be told to end, and the seconds that a move would
        lose.
        """
        self.channel.send(MOVABLE, lost_seconds)

    def close(self) -> None:
        """Let the keeper keep nothing any more, and end. The guardian must have ended."""
        self.channel.send(FREE)
        self.channel.close()
        self.guardian.close()
        see_end(self.pid, _POPRUN_END_PATIENCE_S)


def start_keeper(
    folder: RunFolder,
    output_handle: int,
    means: KeeperMeans,
    *,
    close: Sequence[int] = (),
    namespace: bool = True,
    server: ForkServer | None = None,
) -> tuple[KeeperProcess, RunFolder]:
    """Fork the keeper of a run, and the guardian below it. Returns both and the run's folder.

    output_handle: the descriptor for mpirun's own output. close: descriptors that only poprun may
    keep. namespace: whether to make a PID namespace. server: the fork server; None: this process
    forks. Raises ForkServerEnded.
    """
    to_keeper, keeper_end = Channel.pair()
    to_guardian, guardian_end = Channel.pair()
    folder_names = (folder.name, folder.path, folder.shared_memory)
    handles = [*keeper_end.handles, *guardian_end.handles, output_handle, *folder.locks]
    try:
        pid = server.fork(folder_names, handles) if server else os.fork()
    except (OSError, PodwrightError):
        folder.remove()
        raise
    if not pid:
        exit_code = 1
        try:
            for handle in (*to_keeper.handles, *to_guardian.handles, *close):
                os.close(handle)
            exit_code = keep(means, folder_names, handles, namespace=namespace)
        finally:
            os._exit(exit_code)
    keeper_end.close()
    guardian_end.close()
    keeper_process = KeeperProcess(pid, to_keeper, to_guardian)
    if guarded_message := to_keeper.receive_one():
        keeper_process = keeper_process._replace(inner=HeldChild(*guarded_message[1:]))
        folder = folder._replace(group=keeper_process.inner.group)
    return keeper_process, placed(to_guardian, folder, keeper_process.inner.pid)


def keep(
    means: KeeperMeans, folder_names: Sequence[str], handles: Sequence[int], *, namespace: bool
) -> int:
    """Run as the keeper of a run, in a process forked for it. Returns its exit code.

    folder_names: the run's name and folders. handles: both connections, the output, the folders'
    locks.
    """
    to_poprun, guardian_end = Channel(*handles[:2]), Channel(*handles[2:4])
    output_handle, *locks = handles[4:]
    run_name, folder_path, memory_path = folder_names
    folder = RunFolder(run_name, folder_path, memory_path, tuple(locks))
    os.setsid()
    name_process("podwright-keep")
    become_subreaper()
    leash_reader, leash_writer = os.pipe()
    guardian_child = fork_guardian(
        guardian_end,
        folder,
        output_handle,
        close_handles=[*to_poprun.handles, leash_writer],
        leash_handle=leash_reader,
        namespace=namespace,
    )
    guardian_end.close()
    os.close(leash_reader)
    os.close(output_handle)
    to_poprun.send(GUARDED, *guardian_child)
    folder = folder._replace(group=guardian_child.group)
    return _Keeper(to_poprun, folder, guardian_child.pid, means).run()


class Renewals:
    """The schedule of renewals. Its clock goes on while a laptop sleeps (CLOCK_BOOTTIME)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._next = clock() + RENEW_INTERVAL_S

    def now(self) -> None:
        """Renew at once, since there is news for the server."""
        self._next = self._clock()

    @property
    def due(self) -> bool:
        """Whether a renewal is due."""
        return self._clock() >= self._next

    def tried(self, *, well: bool) -> None:
        """Record that a renewal has been tried."""
        self._next = self._clock() + (RENEW_INTERVAL_S if well else RENEW_RETRY_INTERVAL_S)


class _Keeper:
    def __init__(
        self,
        channel: Channel,
        folder: RunFolder,
        guardian_pid: int,
        means: KeeperMeans,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.channel = channel
        self.folder = folder
        self.guardian = guardian_pid
        self.means = means
        self.sweepers: dict[str, list[str]] = {}
        self.login_s = 0.0
        self.holding: Sequence[object] = ()
        self.keeping: KeptHolding | None = None
        self.partition_errors: tuple[str, ...] = ()
        self.renewals = Renewals(boottime)
        self.lost = self.cleared = False
        self.move_seconds = 0.0
        self.grace = ORPHAN_GRACE_S
        self.kill_at: float | None = None
        self.ending: Ending | None = None

    def run(self) -> int:
        wake_reader, wake_writer = os.pipe()
        for handle in (wake_reader, wake_writer):
            os.set_blocking(handle, False)
        for number in (*_IGNORED_SIGNALS, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(wake_reader, select.POLLIN)
        poll.register(self.channel.handle, select.POLLIN)
        while True:
            ready_handles = {handle for handle, _ in poll.poll(self._poll_seconds() * 1000)}
            with contextlib.suppress(BlockingIOError):
                os.read(wake_reader, 512)
            has_messages = self.channel.handle in ready_handles
            if self.turn(heard=has_messages):
                return 0
            if has_messages and self.channel.closed:
                poll.unregister(self.channel.handle)

    def turn(self, *, heard: bool) -> bool:
        """Do one turn of its loop. Returns True after the last. heard: there are messages."""
        if heard:
            self._take_messages()
            if self.channel.closed:
                self._end(0.0, ORPHAN_GRACE_S)
        reap(self._child_ended)
        self._advance_end()
        if self.cleared and self.channel.closed:
            self.folder.remove()
            self._give_back()
            return True
        if self.holding and not self.lost and self.renewals.due:
            self._renew_lease()
        return False

    def _poll_seconds(self) -> float:
        # poll(2) does not count the time in which the machine sleeps, so it is called often.
        return min(1.0, self.ending.pause if self.ending and not self.cleared else 1.0)

    def _take_messages(self) -> None:
        for message_kind, *values in self.channel.receive():
            if message_kind == HOLD:
                self.holding, self.lost = values, False
                self.renewals = Renewals(boottime)
            elif message_kind == HOSTS:
                self.sweepers, self.login_s = values
            elif message_kind == MOVABLE:
                self.move_seconds = values[0]
                self.renewals.now()
            elif message_kind == SYNC:
                self.channel.send(SYNCED, values[0])
            elif message_kind == FREE:
                self.holding, self.sweepers = (), {}
            elif message_kind == END:
                self._end(*values)

    def _end(self, patience: float, grace: float) -> None:
        """Note that an end has begun. What has not ended by its deadline is killed."""
        kill_at = self.clock() + patience + grace + MPIRUN_END_WAIT_S + SLACK
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        self.grace = min(self.grace, grace)
        if self.ending:
            self.ending.sooner(patience, grace)

    def _child_ended(self, pid: int, exit_code: int) -> None:
        if pid == self.guardian:
            self.guardian = 0

    def _advance_end(self) -> None:
        if self.cleared:
            return
        if self.guardian:
            if self.kill_at is not None and self.clock() > self.kill_at:
                os.kill(self.guardian, signal.SIGKILL)
            return
        # In a PID namespace nothing is left by now: its first process is reaped after all others.
        self.ending = self.ending or Ending(
            os.getpid(), 0.0, self.grace, group=self.folder.group, clock=self.clock
        )
        if self.ending.step():
            reap(self._child_ended)
            self.cleared = True
            self.channel.send(CLEARED)

    def _renew_lease(self) -> None:
        self.keeping = self.keeping or self.means.open(self.holding)
        # After all have ended, no process is left to be told.
        lease_end = self.keeping.renew(0.0 if self.cleared else self.move_seconds)
        self.renewals.tried(well=self.keeping.well)
        if lease_end:
            self.lost = True
            self.channel.send(LOST, *lease_end)
            self._end(0.0, ORPHAN_GRACE_S)
        elif self.keeping.well:
            self.channel.send(KEPT)
            if self.keeping.move:
                self.channel.send(MOVE, *self.keeping.move)
            if self.keeping.errors != self.partition_errors:
                self.partition_errors = self.keeping.errors
                self.channel.send(FAULTY, "; ".join(self.partition_errors))

    def _give_back(self) -> None:
        hosts = self.means.cleared_hosts(self.sweepers, self.login_s) if self.sweepers else None
        if self.holding and not self.lost:
            (self.keeping or self.means.open(self.holding)).give_back(hosts)


_IGNORED_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
