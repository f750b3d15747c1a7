"""The gate as a process: what it is told, how it begins, and what it must not take.

It ends with its server, whatever ends that one: the pair of sockets between them is then closed.
Signals for the group of processes are the server's to answer.
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

#: Bytes of private memory beyond which an allocation fails. Long before that connections go.
MAX_DATA = 2 << 30
#: Who gives way where both want the processor: the gate, a little.
NICE = 2


class Setup(msgspec.Struct, frozen=True):
    """What a gate is told. listener, link: numbers of its sockets. certs: their folder, or none.

    connections, each: at once, of all and of one address. memory: bytes, above which the
    connections that sent most are closed.
    """

    listener: int
    link: int
    certs: str = ""
    connections: int = 1024
    each: int = 512
    memory: int = 384 << 20


def words(setup: Setup) -> list[str]:
    """The command that starts a gate. -P: nothing is imported from the current folder."""
    return [sys.executable, "-P", "-m", "podwright.gate", msgspec.json.encode(setup).decode()]


async def spawn(
    listener: socket.socket, link: socket.socket, certs: Path | None
) -> asyncio.subprocess.Process:
    """Start a gate with these two sockets, and a session of its own. What it has to say, as gRPC's
    library may, comes by its standard error."""
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


def limit(setup: Setup) -> None:
    """Take no more than this of the machine: descriptors, memory, the processor, core files."""
    wanted = 3 * setup.connections + 256  # a stranger's end, and both of the one to gRPC
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MAX_DATA if hard == resource.RLIM_INFINITY else min(MAX_DATA, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        os.nice(NICE)
