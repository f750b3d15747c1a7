"""poprun's side of its relays: one for each other host, started together, heard one by one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from podwright._version import __version__
from podwright.hosts import WAY, Subnet, explain
from podwright.launcher._exit_cause import described
from podwright.launcher._guardian import ENDED, QUIET
from podwright.launcher._relay import BEAT, BEAT_EVERY, HELLO, READY, REFUSED, SILENCE
from podwright.launcher._relay_protocol import HostsUnusable, HostTask, RelayConnection

#: The relay, as its host is to run it.
RELAY = (sys.executable, "-P", "-m", "podwright.launcher._remote_main", "relay")
#: Seconds that all hosts have, together, until their relays are ready.
LIMIT = 40.0
#: Seconds that a relay has beyond what it was given to end everything.
SLACK = 6.0
_SAID = 8192
#: Seconds that the way to a host has to end once the line over it is closed.
_LAST = 0.5

#: Makes the command that runs words on a host.
Starter = Callable[[str, Sequence[str]], list[str]]


class Remote:
    """One other host. ranks: its instances. ended: nothing of the run is left there, or it is lost.

    wrapper, restore: words in front of an instance's rank, and of its program, on that host.
    address: of a worker of a Kubernetes job, whose name no resolver knows; others have none.
    run: what the run is called there. sweeper: the command that sees to its end (_host_sweep).
    note: what was said of the way there, for poprun's user.
    """

    def __init__(self, number: int, host: str, ranks: Sequence[int], address: str = "") -> None:
        self.number, self.host, self.ranks = number, host, tuple(ranks)
        self.address = address
        self.run = ""
        self.sweeper: list[str] = []
        self.note = ""
        self.wrapper: list[str] = []
        self.restore: list[str] = []
        self.subnets: tuple[Subnet, ...] = ()
        self.port = 0
        self.ready = self.ended = self.quiet = self.lost = False
        #: When it was ready, in nanoseconds of CLOCK_BOOTTIME.
        self.reached = 0
        self.problem: tuple[str, str, int] | None = None
        self.heard = 0.0
        self._pid = 0
        self._way = ""
        self._said = b""
        self._errors = -1

    def start(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start the way there. Raises OSError."""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._errors, theirs_err = os.pipe()
        self._way = argv[0]
        os.set_blocking(self._errors, False)
        self.line = RelayConnection(ours_in, ours_out)
        dup = os.POSIX_SPAWN_DUP2
        try:
            self._pid = os.posix_spawn(
                argv[0],
                list(argv),
                dict(environ),
                file_actions=[(dup, theirs_in, 0), (dup, theirs_out, 1), (dup, theirs_err, 2)],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
            )
        finally:
            for handle in (theirs_in, theirs_out, theirs_err):
                os.close(handle)

    def register(self, poll: select.poll, *, reading: bool) -> None:
        """Wait for this host too."""
        if self.line.closed:
            return
        if reading:
            poll.register(self.line.handle, select.POLLIN)
        if self.line.waiting:
            poll.register(self.line.writing, select.POLLOUT)

    def said(self) -> str:
        """The last that was said on standard error on the way there."""
        with contextlib.suppress(OSError):
            while data := os.read(self._errors, _SAID):
                self._said = (self._said + data)[-_SAID:]
        return self._said.decode(errors="replace")

    def hear(self) -> list[tuple[Any, ...]]:
        """What it said since, its signs of life and of its end taken note of."""
        messages = []
        for message in self.line.receive():
            if message[0] == ENDED:
                self.ended = True
            elif message[0] == QUIET:
                self.quiet = True
            else:
                messages.append(message)
        self.heard = time.monotonic()
        return messages

    def silent(self, now: float) -> bool:
        """Whether it has said nothing for so long that it must be gone."""
        return not self.ended and now - self.heard > SILENCE

    def greet(self, task: HostTask) -> None:
        """One step towards READY; sets `ready` or `problem`."""
        for kind, *values in self.line.receive():
            if kind == READY:
                told = values[0]
                self.wrapper, self.restore = told["wrapper"], told["restore"]
                self.subnets = tuple(Subnet(*words) for words in told["subnets"])
                self.port = told["port"]
                self.ready, self.reached = True, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                self.note = _note(self.said())
                self._said = b""  # what login scripts said explains nothing any more
            elif kind == REFUSED:
                self.problem = (values[0], values[1], values[2])
        if self.ready or self.problem:
            return
        if self.line.version not in (None, __version__):
            self.problem = (
                f"it has Podwright {self.line.version}, this host has {__version__}",
                f"Put this one there too: rsync -a {sys.prefix}/ {self.host}:{sys.prefix}/",
                HostsUnusable.exit_code,
            )
        elif self.line.version and not self.heard:
            self.heard = time.monotonic()
            self.line.send(HELLO, task._asdict())
        if self.line.closed and not self.problem:
            self.fail(self._wait(2.0))

    def why(self) -> str:
        """Why the line closed: what was said on the way there, or how it ended."""
        code = self._wait(_LAST)
        way = os.path.basename(self._way)
        if code is not None and code < 0:
            return f"its {way} {described(128 - code)}"
        lines = [line for line in self.said().splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else "the connection to it closed"

    def fail(self, code: int | None) -> None:
        """It cannot be had; why, from what was said."""
        see = "kubectl logs {host}" if self.address else "ssh {host} true"
        problem = explain(self.host, self.said(), code, see=f"See: {see.format(host=self.host)}")
        self.problem = (*problem, HostsUnusable.exit_code)

    def _wait(self, seconds: float) -> int | None:
        """The way's exit code; None if it does not end."""
        until = time.monotonic() + seconds
        while self._pid:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # reaped with the rest
                self._pid = 0
                break
            if pid:
                self._pid = 0
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > until:
                return None
            time.sleep(0.005)
        return 0

    def close(self, seconds: float = 0.0) -> None:
        """Hang up, and see the way there to its end."""
        if self._errors < 0:
            return
        self.line.close()
        if self._wait(seconds) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._wait(5.0)
        os.close(self._errors)
        self._errors = -1


def _note(said: str) -> str:
    return "\n".join(line.removeprefix(WAY) for line in said.splitlines() if line.startswith(WAY))


def connect(
    remotes: Sequence[Remote],
    task: Callable[[Remote], HostTask],
    starter: Starter,
    environ: Mapping[str, str],
    limit: float = LIMIT,
) -> None:
    """Start all relays and wait until they are ready.

    Raises HostsUnusable (or, if a relay refused, an error with its exit code) naming each host.
    """
    for remote in remotes:
        remote.start(starter(remote.host, RELAY), environ)
    until = time.monotonic() + limit
    waiting = list(remotes)
    while waiting and (left := until - time.monotonic()) > 0:
        poll = select.poll()
        for remote in waiting:
            remote.register(poll, reading=True)
        ready = {handle for handle, _ in poll.poll(left * 1000)}
        for remote in waiting:
            if remote.line.writing in ready:
                remote.line.pump()
            if remote.line.handle in ready or remote.line.closed:
                remote.greet(task(remote))
        waiting = [r for r in waiting if not (r.ready or r.problem)]
    for remote in waiting:
        remote.fail(None)
    _raise([r for r in remotes if r.problem], len(remotes))


def _raise(bad: Sequence[Remote], count: int) -> None:
    told = [(r.host, *r.problem) for r in bad if r.problem]
    if not told:
        return
    host, problem, hint, code = told[0]
    if len(told) == 1:
        error = HostsUnusable(f"host {host}: {problem}", would_work=hint, hosts=[host])
    else:
        each = "; ".join(f"{host}: {problem}" for host, problem, *_ in told[:5])
        more = f"; and {len(told) - 5} more" if len(told) > 5 else ""
        error = HostsUnusable(
            f"{len(told)} of {count} other hosts cannot be used: {each}{more}",
            would_work=f"For the first: {hint}",
            hosts=[host for host, *_ in told],
        )
    error.exit_code = code  # type: ignore[misc]
    raise error


def beat(remotes: Sequence[Remote], last: float) -> float:
    """Give them a sign of life if it is due; when the last one was."""
    now = time.monotonic()
    if now - last < BEAT_EVERY:
        return last
    for remote in remotes:
        if not remote.ended:
            remote.line.send(BEAT)
    return now
