"""What a worker of a Kubernetes job runs: `python -m podwright.hosts._worker_door [PROGRAM …]`.

Runs words for the job's launcher (_worker_call) as sshd would: with the caller's standard streams,
each in a session of its own. PROGRAM, if there is one, runs beside it, and its end is the worker's.
Told to end, it lets what was called end first: its callers are told to end as well.
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

#: What a worker ends with that was told to: as a process that SIGTERM ended.
_TOLD = 128 + signal.SIGTERM
_LARGEST = 1 << 20
_HANDSHAKE_S = 10.0
#: Callers at once that have not shown who they are. With one more, the oldest has to go: so nobody
#: who knocks and says nothing keeps the launcher out, or takes all our descriptors.
UNKNOWN_MOST = 64
_PAUSE = 0.1


class WorkerDoor:
    """The door of a worker called `name`. sessions: of callers that are here. unknown: of those
    that have not shown a certificate yet, the oldest first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sessions: set[asyncio.Task[None]] = set()
        self.unknown: dict[asyncio.Task[None], None] = {}

    def open(self, folder: str, ports: Sequence[int]) -> asyncio.Task[None]:
        """Listen at the first of these ports that is free, until the task is cancelled.

        folder: of certificates and keys. Raises OSError.
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
                except OSError:  # it is gone already, or there are no descriptors
                    await asyncio.sleep(_PAUSE)
                    continue
                if len(self.unknown) >= UNKNOWN_MOST:
                    next(iter(self.unknown)).cancel()
                self.unknown[asyncio.create_task(self._meet(connection, context))] = None
                await asyncio.sleep(0)  # it has begun: whoever cancels it closes the connection

    async def _meet(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        """Until a caller has shown its certificate; then it is called, or gone."""
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
    """At all addresses. Raises OSError."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listening = socket.create_server(("", port), family=family, dualstack_ipv6=both, backlog=128)
    listening.setblocking(False)
    return listening


async def read_frame(reader: StreamReader) -> tuple[int, bytes]:
    """Kind and bytes. Raises EOFError where the other end is gone, ValueError for no frame."""
    kind, size = FRAME.unpack(await reader.readexactly(FRAME.size))
    if size > _LARGEST:
        raise ValueError("too large")
    return kind, await reader.readexactly(size)


async def _run(words: list[str], reader: StreamReader, writer: StreamWriter) -> None:
    """Run words for a caller. If the caller goes, its end is the end of their standard input."""
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
    gone = False
    while data := await source.read(CHUNK):
        if gone:
            continue  # what still runs must not wait for a caller that is away
        try:
            writer.write(frame(kind, data))
            await writer.drain()
        except OSError:
            gone = True


async def serve(environ: Mapping[str, str]) -> int:
    """Until SIGTERM, and until all that was called has ended then."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    name = environ.get(WORKER_VARIABLE, "")
    door = WorkerDoor(name)
    try:
        answers = door.open(environ.get(KEYS_VARIABLE, ""), worker_ports(name))
    except OSError as error:
        print(f"podwright: the launcher cannot reach this worker: {error}", file=sys.stderr)
        return 1
    await told.wait()
    answers.cancel()
    while door.sessions:
        await asyncio.wait(door.sessions)
    return _TOLD


def _child(words: Sequence[str]) -> int:
    """Start the door or a program as a child."""
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
    """The first process of a worker: of the door and of the program, if any; it buries others."""
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
        for pid, status in _ended():
            if pid == decides or (pid == door and not words):
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid in ours:
                ours.remove(pid)


def _ended() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(one)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
