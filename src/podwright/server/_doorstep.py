"""A TCP port that is open at once, and gRPC behind it only when somebody comes.

A server that a command starts is waited for, and most commands never use its TCP port: they talk
over the Unix socket. Importing grpc would more than double the time until the server answers. So
this keeps the port, brings gRPC up on an inner Unix socket at the first knock, and passes bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from podwright.server._streams import say
from podwright.wire import Unavailable

_log = logging.getLogger("podwright.server")
_MOST = 256


class Doorstep:
    """open_inner: brings the service up on the Unix socket `inner`; called at most once."""

    def __init__(self, inner: str, open_inner: Callable[[str], Awaitable[object]]) -> None:
        self._inner = inner
        self._open_inner = open_inner
        self._opened: asyncio.Future[object] | None = None
        self._server: asyncio.Server | None = None
        self._visits: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Keep the port; returns its number. Raises wire.Unavailable."""
        try:
            self._server = await asyncio.start_server(self._visit, host, port)
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {host}:{port}: {error.strerror}",
                would_work="another --api-port, or 0 for a free one",
            ) from None
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        """See out who is left."""
        self.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._visits.add(task)
        inner: asyncio.StreamWriter | None = None
        try:
            if len(self._visits) > _MOST:
                return
            if self._opened is None:
                self._opened = asyncio.ensure_future(self._open_inner(self._inner))
            await asyncio.shield(self._opened)
            inner_reader, inner = await asyncio.open_unix_connection(self._inner)
            await asyncio.gather(_pass(reader, inner), _pass(inner_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # one of the two has gone: so does the other
        except Exception:
            _log.exception("gRPC could not be served")
        finally:
            self._visits.discard(task)
            for end in (writer, inner):
                if end is not None:
                    end.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        say(writer, data)
        await writer.drain()
    writer.close()  # HTTP/2 knows no half-open connection
