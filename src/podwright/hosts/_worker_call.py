"""Runs words in a worker of our Kubernetes job: `python -m podwright.hosts._worker_call NAME …`.
`… --mpi NAME …` is for Open MPI, which gives words of a shell, as it would to ssh.

As ssh does it: standard streams are those of the words there, and so is the exit code; 255 where
the worker could not be had, with why on standard error.
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
from podwright.hosts._worker_door import read_frame
from podwright.hosts._worker_exec import ExecPlace, NoTunnel, exec_place, open_tunnel

if TYPE_CHECKING:
    import ssl

_PORTS_IN_WORDS = "20000 to 29999"
MPI = "--mpi"
#: What to do about `shared_host`.
KEEP_APART = "Open MPI would compute wrong: keep them apart, by podAntiAffinity"
#: As ssh has it: not the program's own.
_NOT_HAD = 255
#: Seconds that a worker has to answer, before poprun gives up by itself: its pod ran long before.
_PATIENCE = 10.0
_ONCE = 5.0
#: For a connection alone, where a firewall lets none pass and says nothing: it has eight ports.
_CONNECT = 1.5
_PAUSE = 0.2
#: For a door beyond the API server: a program is started beside it first.
_TUNNEL = 15.0


class NoWorker(Exception):
    """A worker cannot be had. Argument: why."""


class NotReached(NoWorker):
    """No connection to it was to be had, at any of its ports."""


async def call(
    name: str, words: Sequence[str], environ: Mapping[str, str], *, patience: float = _PATIENCE
) -> int:
    """Run words there; their exit code. patience: seconds that it has to answer.

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
    """Ours. What is no pipe never makes a reader wait, and no loop can wait for it."""
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
    """The worker's door: by a connection, or through the API server where there is none and this
    launcher may. Raises NoWorker."""
    address = job_workers(environ).get(name, "")
    if not address:
        raise NoWorker("it is no worker of this job")
    try:
        context = tls_of(LAUNCHER_ROLE, environ.get(KEYS_VARIABLE, ""))
    except OSError as error:
        raise NoWorker(f"the job's keys cannot be used{_in_words(error)}") from None
    async with contextlib.AsyncExitStack() as way:
        try:
            reader, writer = await _knock(name, address, context, patience)
        except NotReached as error:
            place = exec_place(environ)
            if place is None:
                raise
            said = f"worker {name}: {error}; it is called through the API server (pods/exec)"
            print(f"{WAY}{said}", file=sys.stderr, flush=True)
            try:
                reader, writer = await _knock_through(name, place, context, way)
            except NoWorker as other:
                raise NoWorker(f"{error}; and through the API server: {other}") from None
        way.push_async_callback(_hang_up, writer)
        yield reader, writer


async def _knock(
    name: str, address: str, context: ssl.SSLContext, patience: float
) -> tuple[StreamReader, StreamWriter]:
    """At all of its ports, until it answers. Raises NoWorker; NotReached: if nothing at all did."""
    until = time.monotonic() + patience
    reached = False
    while True:
        why = "no door of it answers"
        for port in worker_ports(name):
            try:
                connection = await _connect(address, port)
            except OSError as error:  # TimeoutError is one
                why = why if reached else f"it does not answer{_in_words(error)}"
                continue
            reached = True
            try:
                return await _meet(name, connection, context)
            except (OSError, EOFError, ValueError) as error:
                why = f"it does not answer{_in_words(error)}"
        if time.monotonic() > until:
            where = f"{address}, TCP port {_PORTS_IN_WORDS}"
            raise (NoWorker if reached else NotReached)(f"{why} ({where})")
        await asyncio.sleep(_PAUSE)


async def _connect(address: str, port: int) -> socket.socket:
    """Raises OSError."""
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
    """The door of that worker at the other end. Raises OSError, EOFError, ValueError where what
    is there is none of this job's, or another worker's."""
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
    name: str, place: ExecPlace, context: ssl.SSLContext, way: contextlib.AsyncExitStack
) -> tuple[StreamReader, StreamWriter]:
    """The same through the API server; what is opened closes with `way`. Raises NoWorker."""
    why = ""
    for port in worker_ports(name):
        async with contextlib.AsyncExitStack() as opened:
            try:
                tunnel = await opened.enter_async_context(open_tunnel(place, name, port))
                met = await _meet(name, tunnel.end, context, _TUNNEL)
            except NoTunnel as error:
                raise NoWorker(str(error)) from None
            except (OSError, EOFError, ValueError) as error:
                why = next(iter(tunnel.said), "") or f"it does not answer{_in_words(error)}"
                continue
            way.push_async_exit(opened.pop_all())
            return met
    raise NoWorker(why)


async def _hang_up(writer: StreamWriter) -> None:
    """At once: all that was to be heard was heard."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def main(words: Sequence[str]) -> int:
    """The exit code."""
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
