"""The process of a worker of a Kubernetes job. Run as a module: `python -m … [PROGRAM …]`.

It runs commands for the job's launcher (_worker_call) as sshd would: with the caller's standard
streams, and each in a session of its own. PROGRAM, if there is one, runs beside it, and the worker
ends when PROGRAM ends. On SIGTERM the door waits until the commands that it runs have ended: their
callers are told to end as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.hosts._kubernetes_workers import (
    BEGIN_FRAME,
    END_FRAME,
    ERRORS_FRAME,
    FRAME_HEADER,
    INPUT_FRAME,
    KEYS_VARIABLE,
    OUTPUT_FRAME,
    STREAM_CHUNK_BYTES,
    WORKER_ROLE,
    WORKER_VARIABLE,
    frame,
    tls_context_of_role,
    worker_ports,
)

if TYPE_CHECKING:
    import ssl

#: The exit code of a worker that SIGTERM ended.
_TERMINATED_EXIT_CODE = 128 + signal.SIGTERM
_MAX_FRAME_BYTES = 1 << 20
_HANDSHAKE_S = 10.0
#: How many callers may be connected without having shown who they are. With one more, the oldest is
#: closed. So callers that send nothing cannot keep the launcher out or use up all descriptors.
MAX_UNKNOWN_CALLERS = 64
_ACCEPT_PAUSE_S = 0.1


class WorkerDoor:
    """The door of a worker called `name`.

    sessions: the tasks of callers that are connected. unknown: the tasks of callers that have not
    shown a certificate yet, the oldest first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: set[asyncio.Task[None]] = set()
        self.unknown: dict[asyncio.Task[None], None] = {}

    def open(self, keys_folder: str, ports: Sequence[int]) -> asyncio.Task[None]:
        """Listen at the first of these ports that is free, until the task is cancelled.

        keys_folder: holds certificates and keys. Raises OSError.
        """
        context = tls_context_of_role(WORKER_ROLE, keys_folder)
        for port in ports:
            with contextlib.suppress(OSError):
                return asyncio.create_task(self._accept_callers(_open_listener(port), context))
        raise OSError(f"none of the ports {', '.join(map(str, ports))} is free")

    async def _accept_callers(
        self, listening_socket: socket.socket, tls_context: ssl.SSLContext
    ) -> None:
        loop = asyncio.get_running_loop()
        with listening_socket:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening_socket)
                except OSError:  # the caller is gone, or no descriptor is free
                    await asyncio.sleep(_ACCEPT_PAUSE_S)
                    continue
                if len(self.unknown) >= MAX_UNKNOWN_CALLERS:
                    next(iter(self.unknown)).cancel()
                self.unknown[asyncio.create_task(self._verify_caller(connection, tls_context))] = (
                    None
                )
                # Let the task start. Cancelling it closes the connection only once it runs.
                await asyncio.sleep(0)

    async def _verify_caller(self, connection: socket.socket, tls_context: ssl.SSLContext) -> None:
        """Wait until a caller has shown its certificate. The connection then is in `sessions`, or
        closed.
        """
        caller_task = asyncio.current_task()
        assert caller_task
        protocol = asyncio.StreamReaderProtocol(StreamReader(), self._serve_caller)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=tls_context,
                ssl_handshake_timeout=_HANDSHAKE_S,
            )
        except OSError:
            pass
        finally:
            self.unknown.pop(caller_task, None)

    async def _serve_caller(self, caller_reader: StreamReader, caller_writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.sessions.add(task)
        try:
            caller_writer.write(frame(BEGIN_FRAME, json.dumps({"worker": self.name}).encode()))
            async with asyncio.timeout(_HANDSHAKE_S):
                kind, frame_data = await read_frame(caller_reader)
            if kind == BEGIN_FRAME:
                await _run_command(json.loads(frame_data), caller_reader, caller_writer)
        except (OSError, EOFError, ValueError):
            pass
        finally:
            self.sessions.discard(task)
            caller_writer.close()


def _open_listener(port: int) -> socket.socket:
    """Return a socket that listens at all addresses. Raises OSError."""
    stack = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if stack else socket.AF_INET
    listening_socket = socket.create_server(
        ("", port), family=family, dualstack_ipv6=stack, backlog=128
    )
    listening_socket.setblocking(False)
    return listening_socket


async def read_frame(reader: StreamReader) -> tuple[int, bytes]:
    """Return the kind and the bytes of a frame. Raises EOFError where the other end is gone, and
    ValueError where a frame is too large.
    """
    kind, frame_bytes = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER.size))
    if frame_bytes > _MAX_FRAME_BYTES:
        raise ValueError("too large")
    return kind, await reader.readexactly(frame_bytes)


async def _run_command(
    command_words: list[str], caller_reader: StreamReader, caller_writer: StreamWriter
) -> None:
    """Run a command for a caller. If the caller goes, the command's standard input ends."""
    try:
        command_process = await asyncio.create_subprocess_exec(
            *command_words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    except OSError as error:
        caller_writer.write(frame(ERRORS_FRAME, f"{command_words[0]}: {error.strerror}\n".encode()))
        caller_writer.write(frame(END_FRAME, b"127"))
        await caller_writer.drain()
        return
    assert command_process.stdout
    assert command_process.stderr
    input_task = asyncio.create_task(_feed_command(command_process, caller_reader))
    await asyncio.gather(
        _pass_output_on(command_process.stdout, OUTPUT_FRAME, caller_writer),
        _pass_output_on(command_process.stderr, ERRORS_FRAME, caller_writer),
    )
    exit_code = await command_process.wait()
    input_task.cancel()
    caller_writer.write(
        frame(END_FRAME, str(exit_code if exit_code >= 0 else 128 - exit_code).encode())
    )
    await caller_writer.drain()


async def _feed_command(command_process: Process, caller_reader: StreamReader) -> None:
    assert command_process.stdin
    with contextlib.suppress(OSError, EOFError, ValueError):
        while True:
            kind, input_data = await read_frame(caller_reader)
            if kind != INPUT_FRAME or not input_data:
                break
            command_process.stdin.write(input_data)
            await command_process.stdin.drain()
    command_process.stdin.close()


async def _pass_output_on(
    output_stream: StreamReader, frame_kind: int, caller_writer: StreamWriter
) -> None:
    caller_gone = False
    while chunk := await output_stream.read(STREAM_CHUNK_BYTES):
        if caller_gone:
            continue  # the command must not wait for a caller that is gone
        try:
            caller_writer.write(frame(frame_kind, chunk))
            await caller_writer.drain()
        except OSError:
            caller_gone = True


async def serve(environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM, and then until all commands have ended. Return the exit code."""
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    name = environ.get(WORKER_VARIABLE, "")
    door = WorkerDoor(name)
    try:
        task = door.open(environ.get(KEYS_VARIABLE, ""), worker_ports(name))
    except OSError as error:
        print(f"podwright: the launcher cannot reach this worker: {error}", file=sys.stderr)
        return 1
    await event.wait()
    task.cancel()
    while door.sessions:
        await asyncio.wait(door.sessions)
    return _TERMINATED_EXIT_CODE


def _fork_child(program_words: Sequence[str]) -> int:
    """Start the door or a program as a child process, and return its process id."""
    child_pid = os.fork()
    if child_pid:
        return child_pid
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if not program_words:
            os._exit(asyncio.run(serve(os.environ)))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(program_words[0], list(program_words))
    except OSError as error:
        failed = program_words[0] if program_words else "the worker's door"
        print(f"{failed}: {error.strerror or error}", file=sys.stderr, flush=True)
        os._exit(126 if isinstance(error, PermissionError) else 127)
    finally:
        os._exit(1)


def main(program_words: Sequence[str]) -> int:
    """Run as the first process of a worker, and return its exit code.

    It is the parent of the door and of the program, if there is one, and it reaps all other
    processes.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    door_pid = _fork_child(())
    child_pids = [door_pid, *([_fork_child(program_words)] if program_words else [])]
    deciding_pid = child_pids[-1]
    while True:
        signal_number = signal.sigwait({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
        if signal_number != signal.SIGCHLD:
            for exited_pid in child_pids:
                os.kill(exited_pid, signal.SIGTERM)
            continue
        for exited_pid, status in _reap_children():
            if exited_pid == deciding_pid or (exited_pid == door_pid and not program_words):
                exit_code = os.waitstatus_to_exitcode(status)
                return exit_code if exit_code >= 0 else 128 - exit_code
            if exited_pid in child_pids:
                child_pids.remove(exited_pid)


def _reap_children() -> list[tuple[int, int]]:
    exited_children = []
    with contextlib.suppress(ChildProcessError):
        while (pid_and_status := os.waitpid(-1, os.WNOHANG))[0]:
            exited_children.append(pid_and_status)
    return exited_children


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
