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

from podwright.hosts._job_workers import (
    BEGIN,
    CHUNK,
    END,
    ERRORS,
    FRAME,
    INPUT,
    KEYS_VARIABLE,
    OUTPUT,
    WORKER_ROLE,
    WORKER_VARIABLE,
    frame,
    tls_of,
    worker_ports,
)

if TYPE_CHECKING:
    import ssl

#: The exit code of a worker that SIGTERM ended.
_TOLD = 128 + signal.SIGTERM
_LARGEST = 1 << 20
_HANDSHAKE_S = 10.0
#: How many callers may be connected without having shown who they are. With one more, the oldest is
#: closed. So callers that send nothing cannot keep the launcher out or use up all descriptors.
UNKNOWN_MOST = 64
_PAUSE = 0.1


class WorkerDoor:
    """The door of a worker called `name`.

    sessions: the tasks of callers that are connected. unknown: the tasks of callers that have not
    shown a certificate yet, the oldest first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: set[asyncio.Task[None]] = set()
        self.unknown: dict[asyncio.Task[None], None] = {}

    def open(self, folder: str, ports: Sequence[int]) -> asyncio.Task[None]:
        """Listen at the first of these ports that is free, until the task is cancelled.

        folder: holds certificates and keys. Raises OSError.
        """
        context = tls_of(WORKER_ROLE, folder)
        for port in ports:
            with contextlib.suppress(OSError):
                return asyncio.create_task(self._answer(_listen(port), context))
        raise OSError(f"none of the ports {', '.join(map(str, ports))} is free")

    async def _answer(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError:  # the caller is gone, or no descriptor is free
                    await asyncio.sleep(_PAUSE)
                    continue
                if len(self.unknown) >= UNKNOWN_MOST:
                    next(iter(self.unknown)).cancel()
                self.unknown[asyncio.create_task(self._meet(connection, context))] = None
                await asyncio.sleep(
                    0
                )  # the task starts: once it runs, cancelling it closes the connection

    async def _meet(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        """Wait until a caller has shown its certificate. The connection then is in `sessions`, or
        closed.
        """
        task = asyncio.current_task()
        assert task
        protocol = asyncio.StreamReaderProtocol(StreamReader(), self._called)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context,
                ssl_handshake_timeout=_HANDSHAKE_S,
            )
        except OSError:
            pass
        finally:
            self.unknown.pop(task, None)

    async def _called(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.sessions.add(task)
        try:
            writer.write(frame(BEGIN, json.dumps({"worker": self.name}).encode()))
            async with asyncio.timeout(_HANDSHAKE_S):
                kind, data = await read_frame(reader)
            if kind == BEGIN:
                await _run(json.loads(data), reader, writer)
        except (OSError, EOFError, ValueError):
            pass
        finally:
            self.sessions.discard(task)
            writer.close()


def _listen(port: int) -> socket.socket:
    """Return a socket that listens at all addresses. Raises OSError."""
    dual_stack = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual_stack else socket.AF_INET
    listening = socket.create_server(
        ("", port), family=family, dualstack_ipv6=dual_stack, backlog=128
    )
    listening.setblocking(False)
    return listening


async def read_frame(reader: StreamReader) -> tuple[int, bytes]:
    """Return the kind and the bytes of a frame. Raises EOFError where the other end is gone, and
    ValueError where a frame is too large.
    """
    kind, size = FRAME.unpack(await reader.readexactly(FRAME.size))
    if size > _LARGEST:
        raise ValueError("too large")
    return kind, await reader.readexactly(size)


async def _run(words: list[str], reader: StreamReader, writer: StreamWriter) -> None:
    """Run a command for a caller. If the caller goes, the command's standard input ends."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    except OSError as error:
        writer.write(frame(ERRORS, f"{words[0]}: {error.strerror}\n".encode()))
        writer.write(frame(END, b"127"))
        await writer.drain()
        return
    assert process.stdout
    assert process.stderr
    feeds = asyncio.create_task(_feed(process, reader))
    await asyncio.gather(
        _pass_on(process.stdout, OUTPUT, writer), _pass_on(process.stderr, ERRORS, writer)
    )
    code = await process.wait()
    feeds.cancel()
    writer.write(frame(END, str(code if code >= 0 else 128 - code).encode()))
    await writer.drain()


async def _feed(process: Process, reader: StreamReader) -> None:
    assert process.stdin
    with contextlib.suppress(OSError, EOFError, ValueError):
        while True:
            kind, data = await read_frame(reader)
            if kind != INPUT or not data:
                break
            process.stdin.write(data)
            await process.stdin.drain()
    process.stdin.close()


async def _pass_on(source: StreamReader, kind: int, writer: StreamWriter) -> None:
    closed = False
    while data := await source.read(CHUNK):
        if closed:
            continue  # the command must not wait for a caller that is gone
        try:
            writer.write(frame(kind, data))
            await writer.drain()
        except OSError:
            closed = True


async def serve(environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM, and then until all commands have ended. Return the exit code."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    name = environ.get(WORKER_VARIABLE, "")
    door = WorkerDoor(name)
    try:
        answers = door.open(environ.get(KEYS_VARIABLE, ""), worker_ports(name))
    except OSError as error:
        print(f"podwright: the launcher cannot reach this worker: {error}", file=sys.stderr)
        return 1
    await stop.wait()
    answers.cancel()
    while door.sessions:
        await asyncio.wait(door.sessions)
    return _TOLD


def _child(words: Sequence[str]) -> int:
    """Start the door or a program as a child process, and return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if not words:
            os._exit(asyncio.run(serve(os.environ)))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(words[0], list(words))
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(126 if isinstance(error, PermissionError) else 127)
    finally:
        os._exit(1)


def main(words: Sequence[str]) -> int:
    """Run as the first process of a worker, and return its exit code.

    It is the parent of the door and of the program, if there is one, and it reaps all other
    processes.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    door = _child(())
    ours = [door, *([_child(words)] if words else [])]
    decides = ours[-1]
    while True:
        number = signal.sigwait({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            for pid in ours:
                os.kill(pid, signal.SIGTERM)
            continue
        for pid, status in _reaped():
            if pid == decides or (pid == door and not words):
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid in ours:
                ours.remove(pid)


def _reaped() -> list[tuple[int, int]]:
    exits = []
    with contextlib.suppress(ChildProcessError):
        while (exited := os.waitpid(-1, os.WNOHANG))[0]:
            exits.append(exited)
    return exits


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
