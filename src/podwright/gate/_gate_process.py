"""The gate as a process: its setup, its start, and the limits of its resources.

It ends with its server, however the server ends, because that closes the pair of sockets between
the two. It has a session of its own, so a signal to the server's process group reaches only the
server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from pathlib import Path

import msgspec

from podwright.gate._connection_queue import MOST_BUSY

#: Bytes of private memory beyond which an allocation fails. The gate closes connections long
#: before.
GATE_MAX_DATA_BYTES = 2 << 30
#: How far the gate yields the processor to other processes (nice).
GATE_NICENESS = 2


class Setup(msgspec.Struct, frozen=True):
    """The settings of a gate.

    listener, link: descriptor numbers of its sockets. certs: the folder of certificates, or empty.
    connections, each: limits of connections at once, in total and of one address. waiting: the
    limit of connections that wait for a place. memory: bytes above which the connections that sent
    most are closed.
    """

    listener: int
    link: int
    certs: str = ""
    connections: int = 1024
    each: int = 512
    waiting: int = 2048
    memory: int = 384 << 20


def words(setup: Setup) -> list[str]:
    """Return the command that starts a gate. -P prevents imports from the current folder."""
    return [sys.executable, "-P", "-m", "podwright.gate", msgspec.json.encode(setup).decode()]


async def spawn(
    listener: socket.socket, link: socket.socket, certs: Path | None
) -> asyncio.subprocess.Process:
    """Start a gate with these two sockets, in a session of its own.

    Its messages, and those of gRPC's library, arrive on its standard error.
    """
    setup = Setup(listener.fileno(), link.fileno(), str(certs) if certs else "")
    return await asyncio.create_subprocess_exec(
        *words(setup),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=(setup.listener, setup.link),
        start_new_session=True,
        env={**os.environ, "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")},
    )


def limit(setup: Setup) -> Setup:
    """Limit the use of this machine's descriptors, memory, processor and core files.

    Returns the setup with as many waiting connections as there are descriptors for.
    """
    # Each connection needs three descriptors: the stranger's end, and both ends of the one to gRPC.
    # A waiting connection needs only the stranger's end.
    needed_descriptors = 3 * (setup.connections + MOST_BUSY) + 256
    wanted_descriptors = needed_descriptors + setup.waiting
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft_limit = (
        wanted_descriptors
        if hard_limit == resource.RLIM_INFINITY
        else min(wanted_descriptors, hard_limit)
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft_limit, hard_limit))
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    data_limit = (
        GATE_MAX_DATA_BYTES
        if hard_limit == resource.RLIM_INFINITY
        else min(GATE_MAX_DATA_BYTES, hard_limit)
    )
    resource.setrlimit(resource.RLIMIT_DATA, (data_limit, hard_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        os.nice(GATE_NICENESS)
    return msgspec.structs.replace(
        setup, waiting=max(0, min(setup.waiting, soft_limit - needed_descriptors))
    )
