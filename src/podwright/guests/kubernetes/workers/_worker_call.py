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
from podwright.hosts._kubernetes_workers import (
    BEGIN_FRAME,
    END_FRAME,
    ERRORS_FRAME,
    INPUT_FRAME,
    KEYS_VARIABLE,
    LAUNCHER_ROLE,
    OUTPUT_FRAME,
    STREAM_CHUNK_BYTES,
    frame,
    job_workers,
    shared_host,
    tls_context_of_role,
    worker_ports,
)

if TYPE_CHECKING:
    import ssl

_PORT_RANGE_TEXT = "20000 to 29999"
MPI_OPTION = "--mpi"
#: What a user can do where `shared_host` finds two workers on one host.
KEEP_APART_ADVICE = "Open MPI would compute wrong: keep them apart, by podAntiAffinity"
#: The exit code of ssh itself, as opposed to the program's own.
_UNREACHABLE_EXIT_CODE = 255
#: Seconds in which a worker must answer. Its pod has been running for long by then.
_WORKER_TIMEOUT_S = 10.0
_HANDSHAKE_SECONDS = 5.0
#: Seconds for a connection to one of the eight ports: a firewall may drop packets silently.
_CONNECT_TIMEOUT_S = 1.5
_RETRY_PAUSE_S = 0.2


class WorkerUnusable(Exception):
    """The worker cannot be used. Argument: why."""


async def call(
    worker_name: str,
    command_words: Sequence[str],
    environ: Mapping[str, str],
    *,
    timeout_s: float = _WORKER_TIMEOUT_S,
) -> int:
    """Run a command in a worker, and return its exit code. timeout_s: seconds in which the worker
    must answer.

    Raises WorkerUnusable.
    """
    async with _open_worker_door(worker_name, environ, timeout_s) as (worker_reader, worker_writer):
        worker_writer.write(frame(BEGIN_FRAME, json.dumps(list(command_words)).encode()))
        input_task = asyncio.create_task(_feed_stdin(await _standard_input(), worker_writer))
        try:
            while True:
                frame_kind, frame_data = await read_frame(worker_reader)
                if frame_kind == END_FRAME:
                    return int(frame_data)
                if frame_kind in (OUTPUT_FRAME, ERRORS_FRAME):
                    await asyncio.to_thread(
                        _write_all_bytes, 1 if frame_kind == OUTPUT_FRAME else 2, frame_data
                    )
        except (OSError, EOFError, ValueError) as error:
            raise WorkerUnusable(f"the connection to it closed{_error_suffix(error)}") from None
        finally:
            input_task.cancel()


def _error_suffix(error: Exception) -> str:
    return f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""


async def _standard_input() -> StreamReader:
    """Return a reader of our standard input.

    The event loop can wait for pipes and sockets alone. Anything else is read at once, because it
    never makes a reader wait.
    """
    stdin_reader = StreamReader()
    stdin_mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(stdin_mode) or stat.S_ISSOCK(stdin_mode):
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdin_reader), os.fdopen(os.dup(0), "rb", 0)
        )
        return stdin_reader
    while stdin_chunk := os.read(0, STREAM_CHUNK_BYTES):
        stdin_reader.feed_data(stdin_chunk)
    stdin_reader.feed_eof()
    return stdin_reader


async def _feed_stdin(stdin_reader: StreamReader, worker_writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await stdin_reader.read(STREAM_CHUNK_BYTES):
            worker_writer.write(frame(INPUT_FRAME, chunk))
            await worker_writer.drain()
        worker_writer.write(frame(INPUT_FRAME))


def _write_all_bytes(file_descriptor: int, remaining_bytes: bytes) -> None:
    while remaining_bytes:
        remaining_bytes = remaining_bytes[os.write(file_descriptor, remaining_bytes) :]


@contextlib.asynccontextmanager
async def _open_worker_door(
    worker_name: str, environ: Mapping[str, str], timeout_s: float
) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    """Connect to the worker's door. Raises WorkerUnusable."""
    address = job_workers(environ).get(worker_name, "")
    if not address:
        raise WorkerUnusable("it is not a worker of this job")
    try:
        context = tls_context_of_role(LAUNCHER_ROLE, environ.get(KEYS_VARIABLE, ""))
    except OSError as error:
        raise WorkerUnusable(f"the job's keys cannot be used{_error_suffix(error)}") from None
    reader, writer = await _try_worker_ports(worker_name, address, context, timeout_s)
    try:
        yield reader, writer
    finally:
        await _abort_connection(writer)


async def _try_worker_ports(
    worker_name: str, worker_address: str, tls_context: ssl.SSLContext, timeout_s: float
) -> tuple[StreamReader, StreamWriter]:
    """Try all ports of the worker until one answers.

    Raises WorkerUnusable.
    """
    deadline = time.monotonic() + timeout_s
    any_port_connected = False
    while True:
        problem = "no door of it answers"
        for worker_port in worker_ports(worker_name):
            try:
                connection = await _connect_socket(worker_address, worker_port)
            except OSError as error:  # TimeoutError is one
                problem = (
                    problem if any_port_connected else f"it does not answer{_error_suffix(error)}"
                )
                continue
            any_port_connected = True
            try:
                return await _verify_worker(worker_name, connection, tls_context)
            except (OSError, EOFError, ValueError) as error:
                problem = f"it does not answer{_error_suffix(error)}"
        if time.monotonic() > deadline:
            address_and_ports = f"{worker_address}, TCP port {_PORT_RANGE_TEXT}"
            raise WorkerUnusable(f"{problem} ({address_and_ports})")
        await asyncio.sleep(_RETRY_PAUSE_S)


async def _connect_socket(address: str, port: int) -> socket.socket:
    """Return a connection. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


async def _verify_worker(
    worker_name: str,
    connection: socket.socket,
    tls_context: ssl.SSLContext,
) -> tuple[StreamReader, StreamWriter]:
    """Make sure that the door of that worker is at the other end, and return its streams.

    Raises OSError, EOFError or ValueError where another program answers, one of another job, or
    another worker.
    """
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            reader, writer = await asyncio.open_connection(
                sock=connection, ssl=tls_context, server_hostname=""
            )
    except BaseException:
        connection.close()
        raise
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            frame_kind, frame_data = await read_frame(reader)
        if frame_kind == BEGIN_FRAME and json.loads(frame_data).get("worker") == worker_name:
            return reader, writer
        raise ValueError("another worker")
    except BaseException:
        await _abort_connection(writer)
        raise


async def _abort_connection(worker_writer: StreamWriter) -> None:
    """Close the connection at once, because everything that was sent has been read."""
    worker_writer.transport.abort()
    with contextlib.suppress(OSError):
        await worker_writer.wait_closed()


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return the exit code."""
    name, *words = arguments
    try:
        if name == MPI_OPTION:
            name, words = words[0], ["sh", "-c", " ".join(words[1:])]
            if problem := shared_host(os.environ):
                raise WorkerUnusable(f"{problem}; {KEEP_APART_ADVICE}")
        return asyncio.run(call(name, words, os.environ))
    except WorkerUnusable as error:
        print(f"worker {name}: {error}", file=sys.stderr)
        return _UNREACHABLE_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
