"""The relay: the process on each other host of a launch, started by ssh or srun (_remote_main).

A relay does on its host what poprun does on its own. It owns a run folder and forks a guardian that
starts and ends the instances. It passes their output, and how they ended, over the one connection
to poprun. It decides nothing. It ends everything here when the connection closes, or when poprun
has been silent for SILENCE seconds (unless poprun sent PAUSE, because Ctrl-Z stops it). The
guardian does the same when the relay is gone, and the relay when the guardian is. Both ignore
signals that a session manager sends: the connection tells them the end.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Mapping, Sequence

from podwright._version import __version__
from podwright.hosts import (
    become_subreaper,
    find_program,
    forbidden_program,
    free_port,
    reap,
    subnets,
)
from podwright.launcher.hosts._peer_liveness import BEAT_EVERY, PeerLiveness
from podwright.launcher.hosts._relay_protocol import HostTask, RelayConnection
from podwright.launcher.instances._exchange import TRACE_STREAM, add_piece, streams
from podwright.launcher.instances._failures import read_said
from podwright.launcher.instances._folder import (
    RUN_VARIABLE,
    SESSION,
    make_folder,
    memory_settings,
    sweep,
)
from podwright.launcher.instances._gpus import OF_HOST, TooFewGpus
from podwright.launcher.instances._instance_binding import bind
from podwright.launcher.instances._instance_pipes import InstancePipes
from podwright.launcher.instances._instance_wrapper import (
    Own,
    StatusPipe,
    make_wrapper,
    restore,
)
from podwright.launcher.instances._profiling import listed, report_folder
from podwright.launcher.watchers._channel import Channel
from podwright.launcher.watchers._guardian import (
    END,
    ENDED,
    LAST_WORDS,
    ORPHAN_GRACE,
    START,
    SYNC,
    SYNCED,
    Ending,
    fork_guardian,
    placed,
)
from podwright.launcher.watchers._lease_keeper import SLACK

HELLO, READY, REFUSED, BEAT, EVENTS = "hello", "ready", "refused", "beat", "events"
WORDS, LAUNCH, LOST = "words", "launch", "lost"
PAUSE, SAID, PAYLOAD = "pause", "said", "payload"
CLOCK, REPORT = "clock", "report"
_CHUNK = 65536
#: Bytes that may wait for the connection before the instances have to wait.
_FULL = 1 << 20
#: Variables that belong to a host and not to the run: each host keeps its own.
OWN_VARIABLES = frozenset(
    [
        *("DISPLAY", "HOSTNAME", "OLDPWD", "PWD", "SHLVL", "TMPDIR", "XDG_RUNTIME_DIR"),
        *("SSH_AUTH_SOCK", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID"),
        *("SLURMD_NODENAME", "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_GTIDS"),
        *("SLURM_LAUNCH_NODE_IPADDR", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID"),
        *("SLURM_SRUN_COMM_HOST", "SLURM_SRUN_COMM_PORT", "SLURM_TASK_PID"),
        "SLURM_TOPOLOGY_ADDR",
    ]
)


def main() -> int:
    """Run the relay until its end. Returns the exit code."""
    line = RelayConnection(os.dup(0), os.dup(1), greets=__version__)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    task = _hello(line)
    if task is None:
        return 1
    try:
        relay = _Relay(line, task)
    except (_Refused, OSError) as error:
        line.send(REFUSED, *_reasons(error))
        _flush(line)
        return 1
    return relay.run()


class _Refused(Exception):
    """This host cannot do what poprun asks. Arguments: the reason, the remedy, and an exit code."""


def _reasons(error: Exception) -> tuple[str, str, int]:
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        hint = "Make room there, or set TMPDIR to a folder with room"
        return f"{error.strerror or error}{where}", hint, 69
    return error.args[0], error.args[1], error.args[2]


def _hello(line: RelayConnection) -> HostTask | None:
    """Return poprun's first message; None if poprun went away instead."""
    until = time.monotonic() + 60
    while not line.closed and time.monotonic() < until:
        _wait(line, 1.0)
        for kind, *values in line.receive():
            if kind == HELLO and values and isinstance(values[0], dict):
                return HostTask(**values[0])
    return None


def _wait(line: RelayConnection, seconds: float) -> None:
    poll = select.poll()
    poll.register(line.handle, select.POLLIN)
    poll.poll(seconds * 1000)


def _flush(line: RelayConnection) -> None:
    poll = select.poll()
    poll.register(line.writing, select.POLLOUT)
    until = time.monotonic() + 5
    while line.waiting and not line.closed and time.monotonic() < until:
        poll.poll(1000)
        line.pump()


class _Relay:
    """The relay between READY and the end."""

    def __init__(self, line: RelayConnection, task: HostTask) -> None:
        self._line, self._task = line, task
        self._started: dict[str, str] = {}
        self._owns = dict(task.owns)
        self._environ = _with_own_variables(task.environ, task)
        _enter(task.folder)
        _check(task.program, self._environ)
        sweep(self._environ)
        self._folder = make_folder(self._environ, task.name)
        try:
            self._guard(task.in_pid_namespace)
            self._begin()
        except BaseException:
            self._folder.remove()
            raise
        line.send(
            READY,
            {
                "wrapper": [*self._wrapper],
                "restore": [*self._restore],
                "subnets": [list(subnet) for subnet in subnets()],
                "port": free_port(""),
            },
        )

    def _guard(self, namespace: bool) -> None:
        self._words, theirs = os.pipe()
        os.set_blocking(self._words, False)
        become_subreaper()
        self._channel, guardians = Channel.pair()
        errors = os.dup(2)
        close = [self._words, self._line.handle, self._line.writing, *self._channel.handles, errors]
        # sshd or srun keeps the connection open until no process has its standard error open. The
        # guardian outlives a relay that was killed, and poprun would learn of that death too late.
        for handle in (1, 2):
            os.dup2(theirs, handle)
        try:
            inner = fork_guardian(guardians, self._folder, theirs, close=close, namespace=namespace)
        finally:
            for handle in (1, 2):
                os.dup2(errors, handle)
            os.close(errors)
        self._guardian = inner.pid
        self._folder = self._folder._replace(group=inner.group)
        guardians.close()
        os.close(theirs)
        self._folder = placed(self._channel, self._folder, inner.pid)

    def _begin(self) -> None:
        folder = self._folder
        instead = memory_settings(folder)
        given = {"returns": self._task.returns, "traces": self._task.traces}
        self._wrapper = make_wrapper(folder, self._bind(), instead, **given)
        self._restore = restore(folder, self._environ)
        self._status = StatusPipe(folder)
        self._pipes = InstancePipes(folder, self._owns, streams(**given), self._line.send_output)
        self._ending: Ending | None = None
        self._done = self._cut = self._forced = False
        self._kill_at = math.inf
        self._poprun = PeerLiveness()

    def _bind(self) -> dict[int, Own]:
        try:
            return bind(self._owns, self._task.placement, self._environ, self._task.gpus)
        except TooFewGpus as error:
            raise _Refused(error.problem, error.would_work, error.exit_code) from None

    def run(self) -> int:
        """Pass messages and output on until the guardian and the line have ended."""
        while not self._done:
            self._turn()
        self._pipes.close(lambda: _flush(self._line))
        self._read_words()
        self._read_status()
        self._folder.remove()
        self._line.send(ENDED)
        _flush(self._line)
        return 0

    def _turn(self) -> None:
        line, channel = self._line, self._channel
        ready = self._ready()
        self._poprun.begin_turn()
        if line.handle in ready and not line.closed:
            self._poprun.heard()
            self._listen()
        if line.writing in ready:
            line.pump()
        if not self._cut and (line.closed or self._poprun.silent):
            self._cut = line.closed = True
            self._end(0.0, ORPHAN_GRACE, False)
        if self._status.handle in ready:
            self._read_status()
        if self._words in ready:
            self._read_words()
        if self._pipes.handle in ready:
            self._pipes.read()
        if not channel.closed and channel.handle in ready:
            self._read_guardian()
        if time.monotonic() > self._kill_at and not channel.closed:
            self._forced = True
            os.kill(self._guardian, signal.SIGKILL)  # it may have been stopped
        if self._ending:
            reap(lambda pid, code: None)
            self._done = self._done or self._ending.step()
        if self._poprun.beat_due():
            line.send(BEAT)

    def _ready(self) -> set[int]:
        line, channel = self._line, self._channel
        poll = select.poll()
        poll.register(self._status.handle, select.POLLIN)
        poll.register(self._words, select.POLLIN)
        if not line.closed:
            poll.register(line.handle, select.POLLIN)
            if line.waiting:
                poll.register(line.writing, select.POLLOUT)
        if not channel.closed:
            poll.register(channel.handle, select.POLLIN)
        if line.waiting < _FULL:
            poll.register(self._pipes.handle, select.POLLIN)
        pause = min(self._ending.pause if self._ending else BEAT_EVERY, BEAT_EVERY)
        return {handle for handle, _ in poll.poll(pause * 1000)}

    def _listen(self) -> None:
        for kind, *values in self._line.receive():
            if kind == START:
                self._start(*values)
            elif kind == PAYLOAD:
                self._take(values[0])
            elif kind == LAUNCH:
                # mpirun's own daemon, as a line of shell
                command = values[1].replace(self._task.session, self._folder.path)
                words = [[values[0], ["/bin/sh", "-c", command], {}]]
                self._channel.send(START, words, self._started)
            elif kind == SYNC and self._channel.closed:
                self._read_status()
                self._line.send(SYNCED, values[0])
            elif kind == END:
                self._end(*values)
            elif kind == PAUSE:
                self._poprun.announce_silence()
            elif kind == CLOCK:
                self._line.send(CLOCK, values[0], time.clock_gettime_ns(time.CLOCK_BOOTTIME))
            elif kind not in (BEAT, HELLO):
                self._channel.send(kind, *values)

    def _take(self, piece: str) -> None:
        try:
            add_piece(self._folder.local_path(self._folder.file("payload")), piece)
        except OSError as error:
            self._line.send(LOST, f"cannot keep what was sent: {error.strerror}")

    def _start(
        self, ranks: Sequence[int], environ: Mapping[str, str], program: Sequence[str]
    ) -> None:
        """Start these instances. There are none when mpirun starts them."""
        own = {RUN_VARIABLE: self._folder.name, SESSION: self._folder.path}
        own |= {n: v for n, v in memory_settings(self._folder).items() if n in environ}
        self._started = {**_with_own_variables(environ, self._task), **own}
        words = [
            [rank, [*self._wrapper, str(rank), *self._restore, *program], {}] for rank in ranks
        ]
        self._channel.send(START, words, self._started)

    def _end(self, patience: float, grace: float, hold: bool) -> None:
        at = time.monotonic() + patience + grace + LAST_WORDS + SLACK
        self._kill_at = min(self._kill_at, at)
        if self._ending:
            self._ending.sooner(patience, grace)
        elif self._channel.closed:
            self._ending = Ending(os.getpid(), patience, grace, group=self._folder.group)
        else:
            self._channel.send(END, patience, grace, hold)
            if self._line.closed:
                self._channel.send("release")

    def _read_guardian(self) -> None:
        for kind, *values in self._channel.receive():
            if kind == ENDED:
                self._done = True
                continue
            self._read_status()  # an instance's own messages come before how its process ended
            self._line.send(kind, *values)
        if self._channel.closed and not self._done:
            with contextlib.suppress(OSError):
                os.waitpid(self._guardian, 0)
            self._ending = Ending(os.getpid(), 0.0, ORPHAN_GRACE, group=self._folder.group)
            if not self._forced:
                self._line.send(LOST, "its guardian process was ended")

    def _read_status(self) -> None:
        events = self._status.read()
        for event in events:
            path = self._folder.local_path(self._folder.stream(f"error.{event.rank}"))
            text = read_said(path) if event.failed else ""
            if text:
                self._line.send(SAID, event.rank, text)
            if event.kind == "end" and self._task.traces:
                self._last_records(event.rank)
        if events:
            self._line.send(EVENTS, [list(event) for event in events])

    def _last_records(self, rank: int) -> None:
        """Send the error text and the reports of an instance before the message of its end."""
        self._pipes.read_rest(rank, streams(returns=True, traces=True)[TRACE_STREAM])
        folder = report_folder({**self._started, **self._owns.get(rank, {})}, rank)
        if folder:
            self._line.send(REPORT, rank, folder, *listed(folder))

    def _read_words(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._words, _CHUNK):
                self._line.send(WORDS, data.decode(errors="replace"))


def _with_own_variables(environ: Mapping[str, str], task: HostTask) -> dict[str, str]:
    """Return an environment in which this host's own variables are as they are here."""
    # Slurm gives each host only its own GPUs, so the relay's own variables count.
    own = OWN_VARIABLES | OF_HOST if task.gpus else OWN_VARIABLES
    theirs = {name: value for name, value in environ.items() if name not in own}
    return theirs | {name: value for name, value in os.environ.items() if name in own}


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise _Refused(
            f"{folder}: {error.strerror}",
            "The folder that poprun runs in has to be there on all hosts",
            69,
        ) from None


def _check(program: str, environ: Mapping[str, str]) -> None:
    if not program or find_program(program, environ) is not None:
        return
    forbidden = forbidden_program(program, environ)
    raise _Refused(
        f"{forbidden} may not be executed there"
        if forbidden
        else f"there is no program {program!r}",
        "The same files have to be at the same places on all hosts",
        126 if forbidden else 127,
    )
