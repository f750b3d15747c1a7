"""The guardian: owns mpirun and every instance below it, and ends them whatever happens.

It is forked before any large module is loaded, and lives in a session of its own, where no Ctrl-C
reaches it. If the kernel permits, it is the first process of a PID namespace: then its death kills
everything below it, stopped processes and daemons as well. Otherwise it is a subreaper: processes
that its descendants leave behind become its children. Above it are the keeper (_lease_keeper) and
poprun, on other hosts the relay. Each has a connection to the others, which closes when one dies:

- poprun or the keeper is gone: the guardian ends everything, and then itself. The remaining one of
  the two removes the run's folders, poprun first.
- the guardian is gone: processes that the kernel has not ended now belong to the keeper, which ends
  them; or to poprun, if the keeper is gone too (`Ending`).
- mpirun is gone: the guardian tells poprun, which asks it to end what is left.

If instances run on several hosts, each other host has a guardian too (_relay). mpirun and its
daemons there would kill all their processes as soon as one of them ends. So while an end is on hold
they are left alone: a guardian sends QUIET once only they are left, and ends them on RELEASE.

It decides nothing else. Its first message is PLACED: where in its mount namespace the run's folder
is. poprun sends START, SIGNAL, LISTENS, TELL, SYNC, END, RELEASE. The guardian sends STARTED,
LISTENS, GONE, SYNCED, QUIET, ENDED.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from podwright.hosts import (
    HeldChild,
    Process,
    become_subreaper,
    descendants,
    fork_held,
    group_is_empty,
    has_children,
    hide_shared_memory,
    in_group,
    kill_all,
    kill_group,
    leave_group,
    mount_private,
    name_process,
    reap,
    remove_group,
)
from podwright.launcher.instances._run_folder import RunFolder
from podwright.launcher.options._instance_environment import IPC_VARIABLE, PRIVATE_IPC
from podwright.launcher.options._move_notice import catches_signal, count_listening_instances
from podwright.launcher.watchers._guardian_channel import Channel
from podwright.launcher.watchers._join_cgroup import enter_partition

START, SIGNAL, END, RELEASE = "start", "signal", "end", "release"
#: LISTENS asks how many instances catch a signal, and the reply has their number. TELL sends it to
#: them.
LISTENS, TELL = "listens", "tell"
#: SYNC asks for an answer. SYNCED has the same number, and comes after everything known by then.
SYNC, SYNCED = "sync", "synced"
PLACED, STARTED, GONE, QUIET, ENDED = "placed", "started", "gone", "quiet", "ended"
#: The kind of a command of START that is not the script of the instance with that number.
ENGINE_COMMAND_KIND, DAEMON_COMMAND_KIND = -1, -2
#: The kind of the command that passes standard input on to instance 0 (_instance_input).
INPUT_COMMAND_KIND = -3

#: The longest time in seconds from asking processes to end to killing them, once one of the
#: launcher's own processes was killed or the lease is lost.
ORPHAN_GRACE_S = 4.0
#: Seconds that mpirun has to end after the last instance.
MPIRUN_END_WAIT_S = 1.0
_STEP_INTERVALS_S = (0.002, 0.1)
#: How often it searches for processes that were forked while their parents were being stopped.
_MAX_STOP_ROUNDS = 20
_SIGNALS_LEFT_TO_POPRUN = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGPIPE,
)

Spawn = Callable[[Sequence[str], Mapping[str, str], int, bool], int]


def spawn(
    argv: Sequence[str], environ: Mapping[str, str], output_handle: int, takes_stdin: bool
) -> int:
    """Start a command with its output in `output_handle` and default signals. Returns its pid.

    takes_stdin: whether it gets this process's standard input.
    """
    file_actions = [
        (os.POSIX_SPAWN_DUP2, output_handle, 1),
        (os.POSIX_SPAWN_DUP2, output_handle, 2),
    ]
    if not takes_stdin or os.isatty(0):
        # A process outside the terminal's session would take input that is meant for the shell.
        file_actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))  # type: ignore[arg-type]
    return os.posix_spawn(
        argv[0],
        list(argv),
        dict(environ),
        file_actions=file_actions,
        setsigmask=[],
        setsigdef=[*_SIGNALS_LEFT_TO_POPRUN, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD],
    )


class Ending:
    """Ends everything below `root`, step by step, so that its caller can read messages meanwhile.

    First it waits `patience` seconds. Then it asks each process once to end, except `engine`, which
    would kill the others. `grace` seconds later it kills, until nothing is left. Once only the
    engine is left, the engine has MPIRUN_END_WAIT_S seconds to end by itself, because it may hang.

    group: a cgroup that contains all these processes but not the caller, if there is one. daemons:
    mpirun's, as far as they were started here: a process that is about to become one is no
    instance. hold: engine and daemons are left alone until `release`. quiet: only they are left.
    """

    def __init__(
        self,
        root: int,
        patience: float,
        grace: float,
        *,
        engine: int = 0,
        daemons: Collection[int] = (),
        spared_pids: Sequence[int] = (),
        group: str = "",
        hold: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        now = clock()
        self.on_hold, self.quiet = hold, False
        self._root, self._engine, self._spare, self._clock = root, engine, spared_pids, clock
        self._daemons, self._group = daemons, group
        self._ask_at = now + patience
        self._kill_at = self._ask_at + grace
        self._asked_processes: set[Process] = set()
        self._engine_alone_at = math.inf
        # Looking at all processes is expensive; while they may still end by themselves, there is
        # time.
        self._interval = _STEP_INTERVALS_S[0] if patience <= 0 else _STEP_INTERVALS_S[1]
        self._look_at = now if patience <= 0 or hold else now + _STEP_INTERVALS_S[1]

    @property
    def pause(self) -> float:
        """Return the seconds until a step is due without the end of a child."""
        return max(self._look_at - self._clock(), 0.0)

    def sooner(self, patience: float, grace: float) -> None:
        """A second request for the end. The earlier of both deadlines counts."""
        self._ask_at = min(self._ask_at, self._clock() + patience)
        self._kill_at = min(self._kill_at, self._ask_at + grace)
        self._soon()

    def release(self) -> None:
        """Permit to end engine and daemons too."""
        self.on_hold = False
        self._soon()

    def _soon(self) -> None:
        self._interval, self._look_at = _STEP_INTERVALS_S[0], -math.inf

    def step(self) -> bool:
        """Do what is due. Call it also whenever a child has been reaped.

        Returns whether nothing is left.
        """
        # Reading /proc takes time, so it may miss a process that forks and exits meanwhile.
        root_is_self = self._root == os.getpid()
        if root_is_self and not has_children() and self._cgroup_is_empty():
            return True
        now = self._clock()
        if now < self._look_at:
            return False
        remaining = [
            *dict.fromkeys([*descendants(self._root, spare=self._spare), *self._cgroup_processes()])
        ]
        if not remaining and (self._spare or not root_is_self) and self._cgroup_is_empty():
            return True
        engine_pids = (self._engine, *self._daemons)
        instance_processes = [
            process
            for process in remaining
            if process.pid not in engine_pids and not is_daemon(process)
        ]
        self.quiet = bool(remaining) and not instance_processes
        if self.on_hold:
            remaining = instance_processes
        engine_alone = not instance_processes and not self.on_hold
        self._engine_alone_at = min(self._engine_alone_at, now) if engine_alone else math.inf
        self._interval = min(self._interval * 1.5, _STEP_INTERVALS_S[1])
        if now >= min(self._kill_at, self._engine_alone_at + MPIRUN_END_WAIT_S):
            if self._group and not self.on_hold:
                kill_group(self._group)
            kill_all(remaining, signal.SIGKILL)
            self._interval = _STEP_INTERVALS_S[0]
        elif now >= self._ask_at:
            # Processes that mpirun has started only now have to be asked as well.
            unasked = [
                process
                for process in instance_processes
                if process._replace(parent=0, state="") not in self._asked_processes
            ]
            unasked = [process for process in unasked if not is_script(process.pid)]
            if unasked:
                kill_all(unasked, signal.SIGTERM)
                self._asked_processes.update(
                    process._replace(parent=0, state="") for process in unasked
                )
                self._interval = _STEP_INTERVALS_S[0]
        self._look_at = now + self._interval
        return False

    def _cgroup_processes(self) -> list[Process]:
        return (
            [process for process in in_group(self._group) if not process.dead]
            if self._group
            else []
        )

    def _cgroup_is_empty(self) -> bool:
        return not self._group or group_is_empty(self._group)


def is_script(pid: int) -> bool:
    """Return whether a process is the script in front of an instance, before it becomes the
    program.

    The script ignores the signals that ask it to end; the program that it becomes will obey them
    (_instance_wrapper).
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            arguments = file.read(4096).split(b"\0")
    except OSError:
        return False
    return (
        len(arguments) > 1
        and arguments[1].endswith(b"/wrapper")
        and b"/podwright-run-" in arguments[1]
    )


def is_daemon(process: Process) -> bool:
    """Return whether a process is a daemon that mpirun starts on other hosts.

    Such a daemon kills its instances when it is asked to end.
    """
    try:
        return os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) == "prted"
    except OSError:
        return False


def fork_guardian(
    channel: Channel,
    folder: RunFolder,
    output_handle: int,
    *,
    close_handles: Sequence[int] = (),
    leash_handle: int = -1,
    spawn: Spawn = spawn,
    namespace: bool = True,
) -> HeldChild:
    """Fork the guardian of a run below this process, which must be a subreaper.

    channel: its end of the connection to poprun. output_handle: the descriptor for mpirun's own
    output. close_handles: descriptors that it does not need. leash_handle: closes when a process is
    gone that the guardian must not outlive.
    """

    def run() -> int:
        for handle in close_handles:
            os.close(handle)
        os.setsid()
        name_process("podwright-guard")
        path = mount_private(folder.name)
        channel.send(PLACED, path)
        return _Guardian(
            channel,
            folder,
            output_handle,
            spawn,
            leash_handle,
            folder_is_private=bool(path),
        ).run()

    guardian_child = fork_held(run, namespace_wanted=namespace, cgroup_name=folder.name)
    if guardian_child.group:
        folder.note_group(guardian_child.group)
    return guardian_child


def placed(channel: Channel, folder: RunFolder, guardian_pid: int) -> RunFolder:
    """Wait for the guardian's first message. Returns the run's folder at its path there."""
    message = channel.receive_one()
    path = message[1] if message else ""
    with contextlib.suppress(OSError):
        return folder.private(path, guardian_pid) if path else folder
    return folder


def wait_for_end(channel: Channel, timeout: float = 10.0) -> None:
    """Wait for the end of the guardian of a run that never started."""
    channel.send(END, 0.0, 0.0, False)
    deadline = time.monotonic() + timeout
    poll = select.poll()
    poll.register(channel.handle, select.POLLIN)
    while not channel.closed and time.monotonic() < deadline:
        if poll.poll(100):
            channel.receive()


class _Guardian:
    def __init__(
        self,
        channel: Channel,
        folder: RunFolder,
        output_handle: int,
        spawn: Spawn,
        leash_handle: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        folder_is_private: bool = False,
    ) -> None:
        """folder_is_private: whether the run's folder is outside of /dev/shm."""
        self.private = folder_is_private
        self.clock = clock
        self.channel = channel
        self.leash = leash_handle
        self.folder = folder
        self.output = output_handle
        self.spawn = spawn
        self.engine, self.input, self.input_pipe, self.group = 0, 0, "", ""
        self.children: dict[int, int] = {}
        self.daemons: set[int] = set()
        self.quiet = self.finished = self.apart = False
        self.ending: Ending | None = None

    def run(self) -> int:
        wake_reader, wake_writer = os.pipe()
        for handle in (wake_reader, wake_writer):
            os.set_blocking(handle, False)
        for number in (*_SIGNALS_LEFT_TO_POPRUN, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        become_subreaper()
        poll = select.poll()
        poll.register(wake_reader, select.POLLIN)
        poll.register(self.channel.handle, select.POLLIN)
        if self.leash >= 0:
            poll.register(self.leash, select.POLLIN)
        while True:
            pause = self.ending.pause if self.ending else None
            ready = dict(poll.poll(None if pause is None else pause * 1000))
            with contextlib.suppress(BlockingIOError):
                os.read(wake_reader, 512)
            has_messages, leash_closed = self.channel.handle in ready, self.leash in ready
            self.turn(heard=has_messages, cut=leash_closed)
            if self.finished:
                return 0
            if has_messages and self.channel.closed:
                poll.unregister(self.channel.handle)
            if leash_closed:
                poll.unregister(self.leash)

    def turn(self, *, heard: bool, cut: bool) -> None:
        """Do one turn of its loop. heard: there are messages. cut: the leash is closed."""
        reap(self._child_ended)
        if heard:
            self._listen()
        if cut:
            self._end_as_orphan()
        if self.ending and self.ending.step():
            reap(self._child_ended)
            if self.channel.closed:
                self.folder.remove()  # the remaining process may still have to read the folder
                if self.group:
                    remove_group(self.group)
            self.channel.send(ENDED)
            self.finished = True
        elif self.ending and self.ending.quiet and not self.quiet:
            self.quiet = True
            self.channel.send(QUIET)

    def _listen(self) -> None:
        for message_kind, *values in self.channel.receive():
            if message_kind == START:
                self._start_commands(*values)
            elif message_kind == SIGNAL:
                self._signal_instances(values[0])
            elif message_kind == LISTENS:
                self.channel.send(LISTENS, self._listening_processes(values[0])[1])
            elif message_kind == TELL:
                kill_all(self._listening_processes(values[0])[0], values[0])
            elif message_kind == SYNC:
                reap(self._child_ended)
                self.channel.send(SYNCED, values[0])
            elif message_kind == END:
                self._end(*values)
            elif message_kind == RELEASE and self.ending:
                self.ending.release()
        if self.channel.closed:
            self._end_as_orphan()

    def _end_as_orphan(self) -> None:
        self._end(0.0, ORPHAN_GRACE_S, False)
        if self.ending:
            self.ending.release()

    def _signal_instances(self, signal_number: int) -> None:
        """Send a signal to all instances and their descendants."""
        if signal_number == signal.SIGSTOP:
            self._stop_all_processes()
        elif signal_number == signal.SIGCONT:
            kill_all(descendants(os.getpid()), signal_number)
        else:
            pids = (self.engine, self.input, *self.daemons)
            processes = [process for process in descendants(os.getpid()) if process.pid not in pids]
            kill_all([process for process in processes if not is_daemon(process)], signal_number)

    def _stop_all_processes(self) -> None:
        """Stop all processes. Repeat until none runs, since mpirun may be starting instances."""
        for _ in range(_MAX_STOP_ROUNDS):
            running_processes = [
                process for process in descendants(os.getpid()) if process.state not in "Tt"
            ]
            if not running_processes:
                return
            kill_all(running_processes, signal.SIGSTOP)
            time.sleep(_STEP_INTERVALS_S[0])

    def _listening_processes(self, signal_number: int) -> tuple[list[Process], int]:
        """Return the processes that catch a signal, and the number of their instances."""
        processes = descendants(os.getpid())
        script_pids = {process.pid for process in processes if is_script(process.pid)}
        launcher_pids = {self.engine, *self.daemons} | script_pids
        listeners = [
            process
            for process in processes
            if process.pid not in launcher_pids and catches_signal(process.pid, signal_number)
        ]
        listeners = [process for process in listeners if not is_daemon(process)]
        return listeners, count_listening_instances(
            listeners, {process.pid: process.parent for process in processes}, script_pids
        )

    def _start_commands(
        self,
        commands: Sequence[tuple[int, Sequence[str], Mapping[str, str]]],
        environ: Mapping[str, str],
    ) -> None:
        """Start commands. Each has its kind, its words, and variables beyond those of all."""
        refusal = (
            ""
            if self.children
            else self._separate_shared_memory(environ) or enter_partition(environ)
        )
        if refusal:
            for rank_or_kind, _, _ in commands:
                self.channel.send(GONE, rank_or_kind, None, refusal)
            return
        kinds = [rank_or_kind for rank_or_kind, _, _ in commands]
        input_kinds = (
            (INPUT_COMMAND_KIND,) if INPUT_COMMAND_KIND in kinds else (ENGINE_COMMAND_KIND, 0)
        )
        for rank_or_kind, argv, command_variables in commands:
            try:
                pid = self.spawn(
                    argv,
                    {**environ, **command_variables},
                    self.output,
                    rank_or_kind in input_kinds,
                )
            except OSError as error:
                self.channel.send(GONE, rank_or_kind, None, error.strerror or str(error))
                continue
            self.children[pid] = rank_or_kind
            if rank_or_kind == DAEMON_COMMAND_KIND:
                self.daemons.add(pid)
            if rank_or_kind == INPUT_COMMAND_KIND:
                self.input, self.input_pipe = pid, argv[-1]
            if rank_or_kind == ENGINE_COMMAND_KIND:
                self.engine = pid
                self.channel.send(STARTED, pid)

    def _separate_shared_memory(self, environ: Mapping[str, str]) -> str:
        """Make a shared memory of the launch's own, if requested. Returns why it failed, or ""."""
        if environ.get(IPC_VARIABLE) != PRIVATE_IPC or self.apart:
            return ""
        try:
            if not self.private and os.getpid() == 1:
                raise OSError(errno.ENOTSUP, "no folder in memory can be mounted")
            hide_shared_memory()
        except OSError as error:
            text = error.strerror or str(error)
            return f"--ipc=private cannot be had on this host: {text}"
        self.apart = True
        return ""

    def _end(self, patience: float, grace: float, hold: bool) -> None:
        if self.input:  # it may wait for input that never comes
            with contextlib.suppress(OSError):
                # An instance that waits for the pipe's writer goes on, and can be asked to end.
                os.open(self.input_pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.input, signal.SIGKILL)
        if self.ending:
            self.ending.sooner(patience, grace)
        else:
            self.group = leave_group(self.folder.name)
            self.ending = Ending(
                os.getpid(),
                patience,
                grace,
                engine=self.engine,
                group=self.group,
                daemons=self.daemons,
                hold=hold,
                clock=self.clock,
            )

    def _child_ended(self, pid: int, exit_code: int) -> None:
        rank_or_kind = self.children.pop(pid, None)
        self.daemons.discard(pid)
        if rank_or_kind == INPUT_COMMAND_KIND:
            self.input = 0
        elif rank_or_kind is not None:
            self.channel.send(GONE, rank_or_kind, exit_code, "")
            if rank_or_kind == ENGINE_COMMAND_KIND:
                self.engine = 0
