"""Where programs of a machine ask its agent to move them into the cgroup of their partition.

A Unix socket: the kernel says who asks, and which process. One line with the partition's name
comes in; an empty line goes out, or why not, as a refusal in JSON. A user's program cannot move
itself: leaving a cgroup needs root. Every account of the machine may connect, so that each has a
limit of its own, and whoever says nothing makes room.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time

from podwright.agents.gpu._machine import GpuMachine
from podwright.errors import Internal, InvalidRequest, PodwrightError
from podwright.hosts import peer_of
from podwright.http import Full, Visitors

_log = logging.getLogger("podwright.agent")
_LONGEST = 4096
#: Connections: of all, of one account. Seconds for the line.
_MOST, _EACH, _PATIENCE = 256, 64, 10.0


class CgroupSocket:
    """Answers at a listening socket."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._server: asyncio.Server | None = None
        self.visitors = Visitors(_MOST, _EACH)

    async def start(self, listener: socket.socket) -> None:
        """From here on it answers."""
        self._server = await asyncio.start_unix_server(self._answer, sock=listener, limit=_LONGEST)

    async def stop(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said, asker = "", _Asker(writer)
        try:
            peer = peer_of(writer.get_extra_info("socket"))
            self.visitors.enter(asker, peer.uid)
            async with asyncio.timeout(_PATIENCE):
                line = await reader.readline()
            asker.silent_since = float("inf")
            if not line.endswith(b"\n"):
                raise InvalidRequest("the line with the partition's name did not end")
            name = line.decode(errors="replace").rstrip("\n")
            await self._machine.enter(name, peer.pid, peer.uid)
        except PodwrightError as error:
            said = json.dumps(error.to_json())
        except (OSError, ValueError, TimeoutError, Full) as error:
            said = json.dumps(Internal(f"the agent could not read that: {error}").to_json())
        except Exception:
            _log.exception("a process could not be moved")
            said = json.dumps(
                Internal("the agent failed", would_work="its log says more").to_json()
            )
        finally:
            self.visitors.gone(asker)
        try:
            writer.write(f"{said}\n".encode())
            await writer.drain()
        except OSError:
            pass  # gone: nothing is left to be told
        finally:
            writer.close()


class _Asker:
    """A connection of which nothing whole was heard yet."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.silent_since = time.monotonic()
        self._writer = writer

    def leave(self) -> None:
        """Go, now."""
        self._writer.transport.abort()
