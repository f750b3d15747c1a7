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
import sys
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
from podwright.launcher.hosts._poprun_liveness import HEARTBEAT_INTERVAL_S, SILENCE, PeerLiveness
from podwright.launcher.hosts._relay_protocol import OUTPUT, HostTask, RelayConnection
from podwright.launcher.instances._divide_gpus import HOST_GPU_VARIABLES, TooFewGpus
from podwright.launcher.instances._failures import read_error_file
from podwright.launcher.instances._function_exchange import TRACE_STREAM, add_piece, streams
from podwright.launcher.instances._instance_binding import bind
from podwright.launcher.instances._instance_input import INPUT_STREAM, InputSink, make_empty_input
from podwright.launcher.instances._instance_pipes import InstancePipes
from podwright.launcher.instances._instance_wrapper import (
    Own,
    StatusPipe,
    make_wrapper,
    restore,
)
from podwright.launcher.instances._profile_folders import listed, report_folder
from podwright.launcher.instances._run_folder import (
    RUN_VARIABLE,
    SESSION,
    make_folder,
    memory_settings,
    sweep,
)
from podwright.launcher.watchers._guardian import (
    END,
    ENDED,
    MPIRUN_END_WAIT_S,
    ORPHAN_GRACE_S,
    RELEASE,
    START,
    SYNC,
    SYNCED,
    Ending,
    fork_guardian,
    placed,
)
from podwright.launcher.watchers._guardian_channel import Channel
from podwright.launcher.watchers._lease_keeper import SLACK

HELLO, READY, REFUSED, BEAT, EVENTS = "hello", "ready", "refused", "beat", "events"
WORDS, LAUNCH, LOST = "words", "launch", "lost"
PAUSE, SAID, PAYLOAD = "pause", "said", "payload"
CLOCK, REPORT = "clock", "report"
#: How many bytes of its input the pipe of instance 0 has taken.
INPUT_TAKEN = "input taken"
#: The relay ends everything because poprun was silent, with the seconds of the silence.
UNHEARD = "unheard"
_READ_CHUNK_BYTES = 65536
#: Seconds in which poprun has to send the task.
_HELLO_LIMIT_S = 60.0
#: Bytes that may wait for the connection before the instances have to wait.
_BACKLOG_LIMIT_BYTES = 1 << 20
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
    connection = RelayConnection(os.dup(0), os.dup(1), greets=__version__)
    null_fd = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null_fd, 0)
    os.dup2(2, 1)
    os.close(null_fd)
    for signal_number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGQUIT,
        signal.SIGPIPE,
    ):
        signal.signal(signal_number, signal.SIG_IGN)
    host_task = _wait_for_hello(connection)
    if host_task is None:
        return 1
    try:
        relay = _Relay(connection, host_task)
    except (_Refused, OSError) as error:
        connection.send(REFUSED, *_refusal_reasons(error))
        _flush_connection(connection)
        return 1
    return relay.run()


class _Refused(Exception):
    """This host cannot do what poprun asks. Arguments: the reason, the remedy, and an exit code."""


def _refusal_reasons(error: Exception) -> tuple[str, str, int]:
    if isinstance(error, OSError):
        suffix = f": {error.filename}" if error.filename else ""
        hint = "Make room there, or set TMPDIR to a folder with room"
        return f"{error.strerror or error}{suffix}", hint, 69
    return error.args[0], error.args[1], error.args[2]


def _wait_for_hello(connection: RelayConnection) -> HostTask | None:
    """Return poprun's first message; None if poprun went away instead."""
    deadline = time.monotonic() + _HELLO_LIMIT_S
    while not connection.closed:
        if time.monotonic() > deadline:
            print(f"poprun sent no task within {_HELLO_LIMIT_S:g} s", file=sys.stderr)
            return None
        _wait_readable(connection, 1.0)
        for kind, *values in connection.receive():
            if kind == HELLO and values and isinstance(values[0], dict):
                return HostTask(**values[0])
    return None


def _wait_readable(connection: RelayConnection, seconds: float) -> None:
    poll = select.poll()
    poll.register(connection.handle, select.POLLIN)
    poll.poll(seconds * 1000)


def _flush_connection(connection: RelayConnection) -> None:
    poll = select.poll()
    poll.register(connection.writing, select.POLLOUT)
    deadline = time.monotonic() + 5
    while connection.waiting and not connection.closed and time.monotonic() < deadline:
        poll.poll(1000)
        connection.pump()


class _Relay:
    """The relay between READY and the end."""

    def __init__(self, connection: RelayConnection, host_task: HostTask) -> None:
        self._line, self._task = connection, host_task
        self._started: dict[str, str] = {}
        self._variables_by_rank = dict(host_task.owns)
        self._environ = _with_own_variables(host_task.environ, host_task)
        _enter_folder(host_task.folder)
        _check_program(host_task.program, self._environ)
        sweep(self._environ)
        self._folder = make_folder(self._environ, host_task.name)
        try:
            self._start_guardian(host_task.in_pid_namespace)
            self._prepare_run()
        except BaseException:
            self._folder.remove()
            raise
        connection.send(
            READY,
            {
                "wrapper": [*self._wrapper],
                "restore": [*self._restore],
                "subnets": [list(subnet) for subnet in subnets()],
                "port": free_port(""),
            },
        )

    def _start_guardian(self, pid_namespace: bool) -> None:
        self._words, output_write_fd = os.pipe()
        os.set_blocking(self._words, False)
        become_subreaper()
        self._channel, guardian_channel = Channel.pair()
        stderr_copy = os.dup(2)
        fds_to_close = [
            self._words,
            self._line.handle,
            self._line.writing,
            *self._channel.handles,
            stderr_copy,
        ]
        # sshd or srun keeps the connection open until no process has its standard error open. The
        # guardian outlives a relay that was killed, and poprun would learn of that death too late.
        for fd in (1, 2):
            os.dup2(output_write_fd, fd)
        try:
            guardian = fork_guardian(
                guardian_channel,
                self._folder,
                output_write_fd,
                close_handles=fds_to_close,
                namespace=pid_namespace,
            )
        finally:
            for fd in (1, 2):
                os.dup2(stderr_copy, fd)
            os.close(stderr_copy)
        self._guardian = guardian.pid
        self._folder = self._folder._replace(group=guardian.group)
        guardian_channel.close()
        os.close(output_write_fd)
        self._folder = placed(self._channel, self._folder, guardian.pid)

    def _prepare_run(self) -> None:
        run_folder = self._folder
        memory_variables = memory_settings(run_folder)
        stream_options = {"returns": self._task.returns, "traces": self._task.traces}
        self._wrapper = make_wrapper(run_folder, self._bind(), memory_variables, **stream_options)
        self._restore = restore(run_folder, self._environ)
        self._input: InputSink | None = None
        if self._task.without_input:
            make_empty_input(run_folder)
        elif 0 in self._variables_by_rank:
            self._input = InputSink(run_folder)
        self._status = StatusPipe(run_folder)
        self._pipes = InstancePipes(
            run_folder, self._variables_by_rank, streams(**stream_options), self._line.send_output
        )
        self._ending: Ending | None = None
        self._done = self._cut = self._guardian_killed = False
        self._kill_at = math.inf
        self._poprun = PeerLiveness()

    def _bind(self) -> dict[int, Own]:
        try:
            return bind(
                self._variables_by_rank, self._task.placement, self._environ, self._task.gpus
            )
        except TooFewGpus as error:
            raise _Refused(error.problem, error.would_work, error.exit_code) from None

    def run(self) -> int:
        """Pass messages and output on until the guardian and the line have ended."""
        while not self._done:
            self._run_turn()
        self._pipes.close(lambda: None if self._cut else _flush_connection(self._line))
        self._read_daemon_output()
        self._read_status()
        self._folder.remove()
        self._line.send(ENDED)
        _flush_connection(self._line)
        return 0

    def _run_turn(self) -> None:
        connection, channel = self._line, self._channel
        ready_fds = self._poll_ready_fds()
        self._poprun.begin_turn()
        if connection.handle in ready_fds and not connection.closed:
            self._poprun.heard()
            self._take_poprun_messages()
        if connection.writing in ready_fds:
            connection.pump()
        if not self._cut and (connection.closed or self._poprun.silent):
            self._cut = True
            connection.send(UNHEARD, SILENCE)  # read by a poprun that was stopped and goes on
            self._end(0.0, ORPHAN_GRACE_S, False)
        if self._status.handle in ready_fds:
            self._read_status()
        if self._input and self._input.handle in ready_fds:
            self._report_input(self._input.pump())
        if self._words in ready_fds:
            self._read_daemon_output()
        if self._pipes.handle in ready_fds:
            self._pipes.read()
        if not channel.closed and channel.handle in ready_fds:
            self._read_guardian()
        if time.monotonic() > self._kill_at and not channel.closed:
            self._guardian_killed = True
            os.kill(self._guardian, signal.SIGKILL)  # it may have been stopped
        if self._ending:
            reap(lambda pid, code: None)
            self._done = self._done or self._ending.step()
        if self._poprun.beat_due():
            connection.send(BEAT)

    def _poll_ready_fds(self) -> set[int]:
        connection, channel = self._line, self._channel
        poll = select.poll()
        poll.register(self._status.handle, select.POLLIN)
        poll.register(self._words, select.POLLIN)
        if self._input and self._input.waiting:
            poll.register(self._input.handle, select.POLLOUT)
        if not connection.closed:
            poll.register(connection.handle, select.POLLIN)
            if connection.waiting:
                poll.register(connection.writing, select.POLLOUT)
        if not channel.closed:
            poll.register(channel.handle, select.POLLIN)
        if connection.waiting < _BACKLOG_LIMIT_BYTES:
            poll.register(self._pipes.handle, select.POLLIN)
        poll_timeout_s = min(
            self._ending.pause if self._ending else HEARTBEAT_INTERVAL_S, HEARTBEAT_INTERVAL_S
        )
        return {fd for fd, _ in poll.poll(poll_timeout_s * 1000)}

    def _take_poprun_messages(self) -> None:
        for message_kind, *message_values in self._line.receive():
            if self._cut and message_kind in (START, LAUNCH):
                continue  # the end has begun here
            if message_kind == START:
                self._start_instances(*message_values)
            elif message_kind == PAYLOAD:
                self._take_payload_piece(message_values[0])
            elif message_kind == OUTPUT:
                self._take_input(*message_values)
            elif message_kind == LAUNCH:
                # mpirun's own daemon, as a line of shell
                daemon_command = message_values[1].replace(self._task.session, self._folder.path)
                start_entries = [[message_values[0], ["/bin/sh", "-c", daemon_command], {}]]
                self._channel.send(START, start_entries, self._started)
            elif message_kind == SYNC and self._channel.closed:
                self._read_status()
                self._line.send(SYNCED, message_values[0])
            elif message_kind == END:
                self._end(*message_values)
            elif message_kind == PAUSE:
                self._poprun.announce_silence()
            elif message_kind == CLOCK:
                self._line.send(
                    CLOCK, message_values[0], time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                )
            elif message_kind not in (BEAT, HELLO):
                self._channel.send(message_kind, *message_values)

    def _take_input(self, rank: int, stream: int, data: bytes) -> None:
        if self._input and (rank, stream) == (0, INPUT_STREAM):
            self._report_input(self._input.add(data))

    def _report_input(self, written: int) -> None:
        if written:
            self._line.send(INPUT_TAKEN, written)

    def _take_payload_piece(self, payload_piece: str) -> None:
        try:
            add_piece(self._folder.local_path(self._folder.file("payload")), payload_piece)
        except OSError as error:
            self._line.send(LOST, f"cannot keep what was sent: {error.strerror}")

    def _start_instances(
        self, ranks: Sequence[int], environ: Mapping[str, str], program: Sequence[str]
    ) -> None:
        """Start these instances. There are none when mpirun starts them."""
        run_variables = {RUN_VARIABLE: self._folder.name, SESSION: self._folder.path}
        run_variables |= {
            variable: variable_value
            for variable, variable_value in memory_settings(self._folder).items()
            if variable in environ
        }
        self._started = {**_with_own_variables(environ, self._task), **run_variables}
        entries = [
            [rank, [*self._wrapper, str(rank), *self._restore, *program], {}] for rank in ranks
        ]
        self._channel.send(START, entries, self._started)

    def _end(self, patience: float, grace: float, hold: bool) -> None:
        kill_at = time.monotonic() + patience + grace + MPIRUN_END_WAIT_S + SLACK
        self._kill_at = min(self._kill_at, kill_at)
        if self._ending:
            self._ending.sooner(patience, grace)
        elif self._channel.closed:
            self._ending = Ending(os.getpid(), patience, grace, group=self._folder.group)
        else:
            self._channel.send(END, patience, grace, hold)
            if self._cut:
                self._channel.send(RELEASE)

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
            self._ending = Ending(os.getpid(), 0.0, ORPHAN_GRACE_S, group=self._folder.group)
            if not self._guardian_killed:
                self._line.send(LOST, "its guardian process was ended")

    def _read_status(self) -> None:
        status_events = self._status.read()
        for event in status_events:
            if self._input and (event.rank, event.kind) == (0, "start"):
                self._report_input(self._input.instance_started())
            path = self._folder.local_path(self._folder.stream(f"error.{event.rank}"))
            message = read_error_file(path) if event.failed else ""
            if message:
                self._line.send(SAID, event.rank, message)
            if event.kind == "end" and self._task.traces:
                self._last_records(event.rank)
        if status_events:
            self._line.send(EVENTS, [list(event) for event in status_events])

    def _last_records(self, rank: int) -> None:
        """Send the error text and the reports of an instance before the message of its end."""
        self._pipes.read_rest(rank, streams(returns=True, traces=True)[TRACE_STREAM])
        profile_folder = report_folder(
            {**self._started, **self._variables_by_rank.get(rank, {})}, rank
        )
        if profile_folder:
            self._line.send(REPORT, rank, profile_folder, *listed(profile_folder))

    def _read_daemon_output(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._words, _READ_CHUNK_BYTES):
                self._line.send(WORDS, chunk.decode(errors="replace"))


def _with_own_variables(environ: Mapping[str, str], task: HostTask) -> dict[str, str]:
    """Return an environment in which this host's own variables are as they are here."""
    # Slurm gives each host only its own GPUs, so the relay's own variables count.
    names = OWN_VARIABLES | HOST_GPU_VARIABLES if task.gpus else OWN_VARIABLES
    run_variables = {
        variable: value for variable, value in environ.items() if variable not in names
    }
    return run_variables | {
        variable: value for variable, value in os.environ.items() if variable in names
    }


def _enter_folder(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise _Refused(
            f"{folder}: {error.strerror}",
            "The folder that poprun runs in has to be there on all hosts",
            69,
        ) from None


def _check_program(program: str, environ: Mapping[str, str]) -> None:
    if not program or find_program(program, environ) is not None:
        return
    path = forbidden_program(program, environ)
    raise _Refused(
        f"{path} may not be executed there" if path else f"there is no program {program!r}",
        "The same files have to be at the same places on all hosts",
        126 if path else 127,
    )
