"""poprun's side of its relays: one for each other host. They are started together and read one by
one.
"""

from __future__ import annotations

import math
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwright._version import __version__
from podwright.hosts import Subnet, explain
from podwright.launcher.hosts._connection_process import ConnectionProcess
from podwright.launcher.hosts._poprun_liveness import HEARTBEAT_INTERVAL_S, SILENCE
from podwright.launcher.hosts._relay import BEAT, HELLO, LOST, READY, REFUSED, UNHEARD
from podwright.launcher.hosts._relay_protocol import HostsUnusable, HostTask, RelayConnection
from podwright.launcher.watchers._guardian import ENDED
from podwright.launcher.watchers._stop_detection import LoopTurns

#: The command of a relay, as its host runs it.
RELAY = (sys.executable, "-P", "-m", "podwright.launcher.hosts._remote_main", "relay")
#: Seconds from a host's last sign of progress until it is given up. Logins may take half a minute:
#: NFS, LDAP, or scripts of conda.
PROGRESS_LIMIT_S = 60.0
#: Seconds after which poprun names the hosts that it waits for.
_LONG_WAIT_S = 10.0
#: Seconds that a relay has beyond the time that it was given to end everything.
SLACK = 6.0

#: Makes the command that runs words on a host.
Starter = Callable[[str, Sequence[str]], list[str]]


class Remote:
    """One other host. ranks: its instances. finished: the run has ended there, or the host is lost.

    wrapper, restore: words in front of an instance's rank, and of its program, on that host.
    address: the address of a Kubernetes job's worker, whose name no resolver knows; empty for other
    hosts. run: the name of the run there. sweeper: the command that sweeps the host (_host_sweep).
    """

    def __init__(
        self, host_number: int, host: str, ranks: Sequence[int], address: str = ""
    ) -> None:
        self.number, self.host, self.ranks = host_number, host, tuple(ranks)
        self.address = address
        self.run = ""
        self.sweeper: list[str] = []
        self.wrapper: list[str] = []
        self.restore: list[str] = []
        self.subnets: tuple[Subnet, ...] = ()
        self.port = 0
        self.greeted = self.ready = self.finished = self.lost = False
        #: When the relay was ready, in nanoseconds of CLOCK_BOOTTIME.
        self.reached = 0
        self.problem: tuple[str, str, int] | None = None
        self.heard = 0.0
        self._process: ConnectionProcess | None = None

    def start(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start ssh or srun to the host. Raises OSError."""
        self._process = ConnectionProcess(argv, environ)
        self.heard = time.monotonic()
        self.line = RelayConnection(self._process.reading, self._process.writing)

    @property
    def started(self) -> bool:
        """Whether ssh or srun was started."""
        return self._process is not None

    @property
    def process(self) -> ConnectionProcess:
        """ssh or srun, once it was started."""
        assert self._process is not None
        return self._process

    def register(self, poll: select.poll, *, reading: bool) -> None:
        """Register this host's connection with a poll."""
        if self.line.closed:
            return
        if reading:
            poll.register(self.line.handle, select.POLLIN)
        if self.line.waiting:
            poll.register(self.line.writing, select.POLLOUT)

    def hear(self) -> list[tuple[Any, ...]]:
        """Return the messages since the last call. Signs of life and of the end are recorded."""
        messages = self.line.receive()
        for message_kind, *values in messages:
            if message_kind == ENDED:
                self.finished = True
            elif message_kind == LOST:
                self.process.explanation = values[0]
            elif message_kind == UNHEARD:
                self.process.explanation = unheard_reason(values[0])
        self.heard = time.monotonic()
        return messages

    def silent(self, now: float) -> bool:
        """Return whether it has been silent for so long that it must be gone."""
        return not self.finished and now - self.heard > SILENCE

    def greet(self, host_task: HostTask) -> None:
        """Do one step towards READY. Sets `ready` or `problem`."""
        for message_kind, *message_values in self.line.receive():
            if message_kind == READY:
                greeting = message_values[0]
                self.wrapper, self.restore = greeting["wrapper"], greeting["restore"]
                self.subnets = tuple(Subnet(*fields) for fields in greeting["subnets"])
                self.port = greeting["port"]
                self.ready, self.reached = True, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                self.process.forget_stderr()  # what login scripts say explains nothing any more
            elif message_kind == REFUSED:
                self.problem = (message_values[0], message_values[1], message_values[2])
        if self.ready or self.problem:
            return
        if self.line.version not in (None, __version__):
            self.problem = (
                f"it has Podwright {self.line.version}, this host has {__version__}",
                f"Put this one there too: rsync -a {sys.prefix}/ {self.host}:{sys.prefix}/",
                HostsUnusable.exit_code,
            )
        elif self.line.version and not self.greeted:
            self.greeted = True
            self.line.send(HELLO, host_task._asdict())
        if self.line.closed and not self.problem:
            self.fail(self.process.wait(2.0))

    def reason(self) -> str:
        """Return why the connection closed."""
        return self.process.reason()

    def give_up(self, seconds: float) -> None:
        """Record that the host has shown no progress for so long that it cannot be used."""
        step = "relay is not ready" if self.greeted else "login is not over"
        self.problem = (
            f"its {step} after {seconds:g} s without a sign of progress",
            f"See where it waits: {self._see_command()}",
            HostsUnusable.exit_code,
        )

    def _see_command(self) -> str:
        return f"kubectl logs {self.host}" if self.address else f"ssh {self.host} true"

    def fail(self, exit_code: int | None) -> None:
        """Record that the host cannot be used, with the reason from its standard error."""
        text = self.process.stderr_text()
        problem = explain(self.host, text, exit_code, see=f"See: {self._see_command()}")
        self.problem = (*problem, HostsUnusable.exit_code)

    def close(self, seconds: float = 0.0) -> None:
        """Close the connection, and wait for the end of ssh or srun."""
        self.line.close()
        self.process.close(seconds)


def unheard_reason(seconds: float) -> str:
    """Return why a relay has ended everything on its host: poprun was silent for these seconds."""
    return f"it heard nothing from poprun for {seconds:g} s and ended its instances"


def connect(
    remotes: Sequence[Remote],
    task: Callable[[Remote], HostTask],
    starter: Starter,
    environ: Mapping[str, str],
    limit: float = PROGRESS_LIMIT_S,
    *,
    report: Callable[[str], None] = lambda line: None,
    turns: LoopTurns | None = None,
) -> None:
    """Start all relays and wait until they are ready.

    The relays that are ready get signs of life meanwhile, and are watched. limit: the seconds after
    its last sign of progress at which a host is given up. report: takes a line that names the hosts
    that are still waited for.
    Raises HostsUnusable (or, if a relay refused, an error with its exit code) naming each host.
    """
    for remote in remotes:
        remote.start(starter(remote.host, RELAY), environ)
    turns = turns or LoopTurns()
    report_at, last_beat = turns.began_awake_at + _LONG_WAIT_S, 0.0
    while waiting_remotes := [r for r in remotes if not (r.ready or r.problem)]:
        if turns.begin(HEARTBEAT_INTERVAL_S):  # nobody was silent: poprun did not listen
            for remote in remotes:
                remote.heard = turns.began_awake_at
        if turns.began_awake_at > report_at:
            report_at = math.inf
            hosts_text = ", ".join(remote.host for remote in waiting_remotes)
            report(f"waiting for {hosts_text}: not ready after {_LONG_WAIT_S:g} s")
        last_beat = beat([r for r in remotes if r.greeted], last_beat)
        poll = select.poll()
        for remote in remotes:
            if not remote.problem:
                remote.register(poll, reading=True)
        for remote in waiting_remotes:
            if remote.process.errors >= 0:
                poll.register(remote.process.errors, select.POLLIN)
        ready_fds = {fd for fd, _ in poll.poll(HEARTBEAT_INTERVAL_S * 1000)}
        for remote in remotes:
            _take_step(remote, task, ready_fds, limit, turns.began_awake_at)
    _raise_unusable_hosts([r for r in remotes if r.problem], len(remotes))


def _take_step(
    remote: Remote,
    task: Callable[[Remote], HostTask],
    ready_fds: set[int],
    limit: float,
    now: float,
) -> None:
    """Read what a host has sent, on its way to READY or behind it."""
    if remote.problem:
        return
    if remote.line.writing in ready_fds:
        remote.line.pump()
    if remote.ready:
        if remote.line.handle in ready_fds and not remote.line.closed:
            remote.hear()
        if remote.line.closed:
            remote.problem = (remote.reason(), "Try again", HostsUnusable.exit_code)
        return
    if remote.line.handle in ready_fds or remote.process.errors in ready_fds:
        remote.process.read_errors()
        remote.heard = now
    if remote.line.handle in ready_fds or remote.line.closed:
        remote.greet(task(remote))
    elif now - remote.heard > limit:
        remote.give_up(limit)


def _raise_unusable_hosts(unusable_remotes: Sequence[Remote], host_count: int) -> None:
    problems = [(remote.host, *remote.problem) for remote in unusable_remotes if remote.problem]
    if not problems:
        return
    host, problem, hint, exit_code = problems[0]
    if len(problems) == 1:
        error = HostsUnusable(f"host {host}: {problem}", would_work=hint, hosts=[host])
    else:
        problems_text = "; ".join(f"{host}: {problem}" for host, problem, *_ in problems[:5])
        more_text = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        error = HostsUnusable(
            f"{len(problems)} of {host_count} other hosts cannot be used: "
            f"{problems_text}{more_text}",
            would_work=f"For the first: {hint}",
            hosts=[host for host, *_ in problems],
        )
    error.exit_code = exit_code  # type: ignore[misc]
    raise error


def beat(remotes: Sequence[Remote], last_beat: float) -> float:
    """Send all relays a sign of life if it is due. Returns when the last one was sent."""
    now = time.monotonic()
    if now - last_beat < HEARTBEAT_INTERVAL_S:
        return last_beat
    for remote in remotes:
        if not remote.finished:
            remote.line.send(BEAT)
    return now
