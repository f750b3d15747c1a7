"""The front for hooks: a POST and an answer over a Unix socket that only Slurm's user may enter.

The hook speaks HTTP/1.0, one request a connection. What it asked for goes on although it goes
away: it asks again, and finds the work done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from podwright.slurm.service._service import Asked, Service
from podwright.wire import InvalidRequest, PodwrightError

_log = logging.getLogger("podwright.slurm")
MAX_BODY = 64 * 1024
READ_S = 5.0
_DECIDED = {"INVALID_ARGUMENT": 400, "PERMISSION_DENIED": 403, "NOT_FOUND": 404}
Handler = Callable[[Asked], Awaitable[str]]


class Front:
    """Answers hooks. state: what GET /slurm.v1/State shows."""

    def __init__(self, service: Service, state: Callable[[], Any]) -> None:
        self._methods: dict[str, Handler] = {
            "/slurm.v1/JobBegins": service.begins,
            "/slurm.v1/JobEnded": service.ended,
        }
        self._state = state
        self._tasks: set[asyncio.Task[tuple[int, str]]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            status, text = await self._answer(reader)
            data = text.encode()
            head = f"HTTP/1.0 {status} {'OK' if status == 200 else 'No'}\r\n"
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError, TimeoutError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def finish(self, seconds: float) -> None:
        """Let what was asked come to its end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str]:
        async with asyncio.timeout(READ_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            verb, _, rest = head.partition(" ")
            path = rest.split(" ", 1)[0]
            if verb == "GET" and path == "/slurm.v1/State":
                return 200, msgspec.json.encode(self._state()).decode() + "\n"
            handler = self._methods.get(path)
            if verb != "POST" or handler is None:
                return 404, f"there is no {verb} {path[:80]}\n"
            length = head.lower().partition("content-length:")[2].split("\r\n")[0].strip()
            if not length.isdecimal() or int(length) > MAX_BODY:
                return 400, "Content-Length is missing or too large\n"
            body = await reader.readexactly(int(length))
        task = asyncio.ensure_future(self._call(handler, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _call(self, handler: Handler, body: bytes) -> tuple[int, str]:
        try:
            asked = msgspec.json.decode(body, type=Asked)
            return 200, await handler(asked)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return 400, f"{error}\n"
        except InvalidRequest as error:
            return 400, f"{error}\n"
        except PodwrightError as error:
            return _DECIDED.get(error.code, 503), f"{error}\n"
        except Exception:
            _log.exception("a hook's request failed")
            return 500, "a fault in the service: see its log\n"
