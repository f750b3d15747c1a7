"""Where programs of a machine ask its agent to move them into the cgroup of their partition.

A Unix socket: the kernel says who asks, and which process. One line with the partition's name
comes in; an empty line goes out, or why not, as a refusal in JSON. A user's program cannot move
itself: leaving a cgroup needs root.
"""

from __future__ import annotations

import asyncio
import json
import socket

from podwright.agents.gpu._machine import GpuMachine
from podwright.errors import Internal, PodwrightError
from podwright.hosts import peer_of

_LONGEST = 4096


class CgroupSocket:
    """Answers at a listening socket."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """From here on it answers."""
        self._server = await asyncio.start_unix_server(self._answer, sock=listener, limit=_LONGEST)

    async def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = ""
        try:
            async with asyncio.timeout(10):
                name = (await reader.readline()).decode(errors="replace").rstrip("\n")
            peer = peer_of(writer.get_extra_info("socket"))
            await self._machine.enter(name, peer.pid, peer.uid)
        except PodwrightError as error:
            said = json.dumps(error.to_json())
        except (OSError, ValueError, TimeoutError) as error:
            said = json.dumps(Internal(f"the agent could not read that: {error}").to_json())
        try:
            writer.write(f"{said}\n".encode())
            await writer.drain()
        except OSError:
            pass  # gone: nothing is left to be told
        finally:
            writer.close()
