"""Runs a command in a worker of our Kubernetes job. Run as a module: `python -m … NAME WORDS`.

`--mpi NAME WORDS` is for Open MPI, which gives words for a shell, as it would to ssh. The standard
streams and the exit code are those of the command, as with ssh. The exit code is 255 if the worker
cannot be reached, and standard error then says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.guests.kubernetes.workers._worker_door import read_frame
from podwright.guests.kubernetes.workers._worker_exec import (
    ExecPlace,
    NoTunnel,
    exec_place,
    open_tunnel,
)
from podwright.hosts._job_workers import (
    BEGIN,
    CHUNK,
    END,
    ERRORS,
    INPUT,
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    OUTPUT,
    WAY,
    frame,
    job_workers,
    shared_host,
    tls_of,
    worker_ports,
)

if TYPE_CHECKING:
    import ssl

_PORTS_IN_WORDS = "20000 to 29999"
MPI = "--mpi"
#: What a user can do where `shared_host` finds two workers on one host.
KEEP_APART = "Open MPI would compute wrong: keep them apart, by podAntiAffinity"
#: The exit code of ssh itself, as opposed to the program's own.
_NOT_HAD = 255
#: Seconds in which a worker must answer. Its pod has been running for long by then.
_PATIENCE = 10.0
_ONCE = 5.0
#: Seconds for a connection to one of the eight ports: a firewall may drop packets silently.
_CONNECT = 1.5
_PAUSE = 0.2
#: Seconds for a door behind the API server, where a program is first started beside it.
_TUNNEL = 15.0


class NoWorker(Exception):
    """The worker cannot be used. Argument: why."""


class NotReached(NoWorker):
    """No connection to the worker was possible, at any of its ports."""


async def call(
    name: str, words: Sequence[str], environ: Mapping[str, str], *, patience: float = _PATIENCE
) -> int:
    """Run a command in a worker, and return its exit code. patience: seconds in which the worker
    must answer.

    Raises NoWorker.
    """
    async with _reach(name, environ, patience) as (reader, writer):
        writer.write(frame(BEGIN, json.dumps(list(words)).encode()))
        feeds = asyncio.create_task(_feed(await _standard_input(), writer))
        try:
            while True:
                kind, data = await read_frame(reader)
                if kind == END:
                    return int(data)
                if kind in (OUTPUT, ERRORS):
                    await asyncio.to_thread(_put, 1 if kind == OUTPUT else 2, data)
        except (OSError, EOFError, ValueError) as error:
            raise NoWorker(f"the connection to it closed{_in_words(error)}") from None
        finally:
            feeds.cancel()


def _in_words(error: Exception) -> str:
    return f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""


async def _standard_input() -> StreamReader:
    """Return a reader of our standard input.

    The event loop can wait for pipes and sockets alone. Anything else is read at once, because it
    never makes a reader wait.
    """
    reader = StreamReader()
    kind = os.fstat(0).st_mode
    if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", 0)
        )
        return reader
    while data := os.read(0, CHUNK):
        reader.feed_data(data)
    reader.feed_eof()
    return reader


async def _feed(own: StreamReader, writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await own.read(CHUNK):
            writer.write(frame(INPUT, data))
            await writer.drain()
        writer.write(frame(INPUT))


def _put(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


@contextlib.asynccontextmanager
async def _reach(
    name: str, environ: Mapping[str, str], patience: float
) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    """Open the worker's door: directly, or through the API server where no direct connection is
    possible and this launcher has the right. Raises NoWorker.
    """
    address = job_workers(environ).get(name, "")
    if not address:
        raise NoWorker("it is not a worker of this job")
    try:
        context = tls_of(LAUNCHER_ROLE, environ.get(KEYS_VARIABLE, ""))
    except OSError as error:
        raise NoWorker(f"the job's keys cannot be used{_in_words(error)}") from None
    async with contextlib.AsyncExitStack() as stack:
        try:
            reader, writer = await _knock(name, address, context, patience)
        except NotReached as error:
            place = exec_place(environ)
            if place is None:
                raise
            warning = f"worker {name}: {error}; it is called through the API server (pods/exec)"
            print(f"{WAY}{warning}", file=sys.stderr, flush=True)
            try:
                reader, writer = await _knock_through(name, place, context, stack)
            except NoWorker as other:
                raise NoWorker(f"{error}; and through the API server: {other}") from None
        stack.push_async_callback(_hang_up, writer)
        yield reader, writer


async def _knock(
    name: str, address: str, context: ssl.SSLContext, patience: float
) -> tuple[StreamReader, StreamWriter]:
    """Try all ports of the worker until one answers. Raises NoWorker, and NotReached if nothing at
    all answered.
    """
    until = time.monotonic() + patience
    reached = False
    while True:
        problem = "no door of it answers"
        for port in worker_ports(name):
            try:
                connection = await _connect(address, port)
            except OSError as error:  # TimeoutError is one
                problem = problem if reached else f"it does not answer{_in_words(error)}"
                continue
            reached = True
            try:
                return await _meet(name, connection, context)
            except (OSError, EOFError, ValueError) as error:
                problem = f"it does not answer{_in_words(error)}"
        if time.monotonic() > until:
            where = f"{address}, TCP port {_PORTS_IN_WORDS}"
            raise (NoWorker if reached else NotReached)(f"{problem} ({where})")
        await asyncio.sleep(_PAUSE)


async def _connect(address: str, port: int) -> socket.socket:
    """Return a connection. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(_CONNECT):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


async def _meet(
    name: str, connection: socket.socket, context: ssl.SSLContext, seconds: float = _ONCE
) -> tuple[StreamReader, StreamWriter]:
    """Make sure that the door of that worker is at the other end, and return its streams.

    Raises OSError, EOFError or ValueError where another program answers, one of another job, or
    another worker.
    """
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(
                sock=connection, ssl=context, server_hostname=""
            )
    except BaseException:
        connection.close()
        raise
    try:
        async with asyncio.timeout(_ONCE):
            kind, data = await read_frame(reader)
        if kind == BEGIN and json.loads(data).get("worker") == name:
            return reader, writer
        raise ValueError("another worker")
    except BaseException:
        await _hang_up(writer)
        raise


async def _knock_through(
    name: str, place: ExecPlace, context: ssl.SSLContext, stack: contextlib.AsyncExitStack
) -> tuple[StreamReader, StreamWriter]:
    """Do the same through the API server. What is opened closes with `stack`. Raises NoWorker."""
    problem = ""
    for port in worker_ports(name):
        async with contextlib.AsyncExitStack() as opened:
            try:
                tunnel = await opened.enter_async_context(open_tunnel(place, name, port))
                met = await _meet(name, tunnel.end, context, _TUNNEL)
            except NoTunnel as error:
                raise NoWorker(str(error)) from None
            except (OSError, EOFError, ValueError) as error:
                problem = next(iter(tunnel.messages), "") or f"it does not answer{_in_words(error)}"
                continue
            stack.push_async_exit(opened.pop_all())
            return met
    raise NoWorker(problem)


async def _hang_up(writer: StreamWriter) -> None:
    """Close the connection at once, because everything that was sent has been read."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def main(words: Sequence[str]) -> int:
    """Run the command, and return the exit code."""
    name, *rest = words
    try:
        if name == MPI:
            name, rest = rest[0], ["sh", "-c", " ".join(rest[1:])]
            if shared := shared_host(os.environ):
                raise NoWorker(f"{shared}; {KEEP_APART}")
        return asyncio.run(call(name, rest, os.environ))
    except NoWorker as error:
        print(f"worker {name}: {error}", file=sys.stderr)
        return _NOT_HAD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
