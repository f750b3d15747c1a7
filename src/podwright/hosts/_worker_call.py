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
import stat
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping, Sequence

from podwright.hosts._job_workers import (
    BEGIN,
    CHUNK,
    END,
    ERRORS,
    INPUT,
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    OUTPUT,
    frame,
    job_workers,
    shared_host,
    tls_of,
    worker_ports,
)
from podwright.hosts._worker_door import read_frame

_PORTS_IN_WORDS = "20000 to 29999"
MPI = "--mpi"
#: What to do about `shared_host`.
KEEP_APART = "Open MPI would compute wrong: keep them apart, by podAntiAffinity"
#: As ssh has it: not the program's own.
_NOT_HAD = 255
#: Seconds that a worker has to answer, before poprun gives up by itself: its pod ran long before.
_PATIENCE = 10.0
_ONCE = 5.0
_PAUSE = 0.2


class NoWorker(Exception):
    """A worker cannot be had. Argument: why."""


async def call(
    name: str, words: Sequence[str], environ: Mapping[str, str], *, patience: float = _PATIENCE
) -> int:
    """Run words there; their exit code. patience: seconds that it has to answer.

    Raises NoWorker.
    """
    reader, writer = await _reach(name, environ, patience)
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
        await _hang_up(writer)


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


async def _reach(
    name: str, environ: Mapping[str, str], patience: float
) -> tuple[StreamReader, StreamWriter]:
    """The worker's door, whichever of its ports it has. Raises NoWorker."""
    address = job_workers(environ).get(name, "")
    if not address:
        raise NoWorker("it is no worker of this job")
    try:
        context = tls_of(LAUNCHER_ROLE, environ.get(KEYS_VARIABLE, ""))
    except OSError as error:
        raise NoWorker(f"the job's keys cannot be used{_in_words(error)}") from None
    until = time.monotonic() + patience
    while True:
        why = "no door of it answers"
        for port in worker_ports(name):
            try:
                async with asyncio.timeout(_ONCE):
                    reader, writer = await asyncio.open_connection(address, port, ssl=context)
                    if await _is(name, reader, writer):
                        return reader, writer
            except (OSError, EOFError, ValueError) as error:  # TimeoutError is an OSError
                why = f"it does not answer{_in_words(error)}"
        if time.monotonic() > until:
            raise NoWorker(f"{why} ({address}, TCP port {_PORTS_IN_WORDS})")
        await asyncio.sleep(_PAUSE)


async def _is(name: str, reader: StreamReader, writer: StreamWriter) -> bool:
    """Is it that worker. Hangs up where it is not."""
    found = False
    try:
        kind, data = await read_frame(reader)
        found = kind == BEGIN and json.loads(data).get("worker") == name
    finally:
        if not found:
            await _hang_up(writer)
    return found


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
