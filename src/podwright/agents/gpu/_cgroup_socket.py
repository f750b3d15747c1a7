"""The socket at which programs of a machine ask its agent to move them into their partition's
cgroup.

It is a Unix socket, so the kernel tells which account and which process asks. A program sends one
line with the partition's name. The reply is an empty line, or a refusal in JSON. A user's program
cannot move itself, since leaving a cgroup needs root. Every account of the machine may connect. So
each account has a limit of its own, and a connection that sends nothing is closed when another one
needs its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time

from podwright.agents.gpu._gpu_machine_driver import GpuMachine
from podwright.errors import Internal, InvalidRequest, PodwrightError
from podwright.hosts import peer_of
from podwright.http import TooManyVisitors, Visitors

_log = logging.getLogger("podwright.agent")
_MAX_LINE_BYTES = 4096
#: The limits of connections, in total and for one account, and the seconds to wait for the line.
_MAX_CONNECTIONS, _MAX_USER_CONNECTIONS, _PATIENCE = 256, 64, 10.0


class CgroupSocket:
    """Answers at a listening socket."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._server: asyncio.Server | None = None
        self.visitors = Visitors(_MAX_CONNECTIONS, _MAX_USER_CONNECTIONS)

    async def start(self, listener: socket.socket) -> None:
        """Start answering."""
        self._server = await asyncio.start_unix_server(
            self._answer_connection, sock=listener, limit=_MAX_LINE_BYTES
        )

    async def stop(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()

    async def _answer_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        reply, connection = "", _AskingConnection(writer)
        try:
            peer_process = peer_of(writer.get_extra_info("socket"))
            self.visitors.enter(connection, peer_process.uid)
            async with asyncio.timeout(_PATIENCE):
                name_line = await reader.readline()
            connection.silent_since = float("inf")
            if not name_line.endswith(b"\n"):
                raise InvalidRequest("the line with the partition's name did not end")
            partition_name = name_line.decode(errors="replace").rstrip("\n")
            await self._machine.enter(partition_name, peer_process.pid, peer_process.uid)
        except PodwrightError as error:
            reply = json.dumps(error.to_json())
        except (OSError, ValueError, TimeoutError, TooManyVisitors) as error:
            reply = json.dumps(Internal(f"the agent could not read that: {error}").to_json())
        except Exception:
            _log.exception("a process could not be moved")
            reply = json.dumps(
                Internal("the agent failed", would_work="its log says more").to_json()
            )
        finally:
            self.visitors.gone(connection)
        try:
            writer.write(f"{reply}\n".encode())
            await writer.drain()
        except OSError:
            pass  # the program is gone
        finally:
            writer.close()


class _AskingConnection:
    """A connection that has not sent its whole line yet."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.silent_since = time.monotonic()
        self._writer = writer

    def leave(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()
