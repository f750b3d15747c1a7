"""The front for hooks: a POST and an answer over a Unix socket, for root and Slurm's user alone.

The hook speaks HTTP/1.0, one request a connection. What it asked for goes on although it goes
away: it asks again, and finds the work done. A hook on another host comes over TCP and shows a
MUNGE credential of Slurm's user, whose payload is the request's body: neither can be used without
the other, and both only once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec

from podwright.hosts import MungeError, Vouches, peer_of
from podwright.slurm.service._asked import Asked
from podwright.wire import InvalidRequest, PodwrightError

_log = logging.getLogger("podwright.slurm")
MAX_BODY = 64 * 1024
READ_S = 5.0
_DECIDED = {"INVALID_ARGUMENT": 400, "PERMISSION_DENIED": 403, "NOT_FOUND": 404}
#: Connections over TCP at once: whoever has no credential must not take all of the service.
MOST = 256
Handler = Callable[[Asked], Awaitable[str]]


class Proofs:
    """Whom hooks over TCP must be. uids: root and Slurm's user."""

    def __init__(self, munge: Vouches, uids: Collection[int]) -> None:
        self._munge, self._uids = munge, uids

    async def problem(self, head: str, body: bytes) -> str:
        """Why a request is not to be believed; empty: it is. Raises MungeError without MUNGE."""
        scheme, _, credential = _header(head, "authorization").partition(" ")
        if scheme.lower() != "munge":
            return "over TCP a request needs a MUNGE credential"
        try:
            proven = await asyncio.to_thread(self._munge.decode, credential.strip())
        except MungeError as error:
            if error.absent:
                raise
            return f"MUNGE credential: {error}"
        if proven.payload != body:
            return "the MUNGE credential is that of another request"
        if proven.uid not in self._uids:
            return f"user {proven.uid} is not Slurm's"
        return ""


class Front:
    """Answers hooks. failed: the site's own prolog did. state: what GET /slurm.v1/State shows.
    proofs: what those over TCP show. uids: who may come by the socket; None: whom its mode lets in.
    """

    def __init__(
        self,
        begins: Handler,
        ended: Handler,
        failed: Handler,
        state: Callable[[], Any],
        proofs: Proofs | None = None,
        uids: Collection[int] | None = None,
    ) -> None:
        self._proofs = proofs
        self._uids = uids
        self._remote = 0
        self._methods: dict[str, Handler] = {
            "/slurm.v1/JobBegins": begins,
            "/slurm.v1/JobEnded": ended,
            "/slurm.v1/PrologFailed": failed,
        }
        self._state = state
        self._tasks: set[asyncio.Task[tuple[int, str]]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection by the socket."""
        refused = ""
        if self._uids is not None:
            uid = peer_of(writer.get_extra_info("socket")).uid
            refused = "" if uid in self._uids else f"user {uid} is not Slurm's\n"
        await self._serve(reader, writer, None, refused)

    async def serve_remote(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection over TCP."""
        assert self._proofs is not None
        self._remote += 1
        try:
            if self._remote <= MOST:
                await self._serve(reader, writer, self._proofs)
        finally:
            self._remote -= 1
            writer.close()

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        proofs: Proofs | None,
        refused: str = "",
    ) -> None:
        try:
            status, text = await self._answer(reader, proofs, refused)
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

    async def _answer(
        self, reader: asyncio.StreamReader, proofs: Proofs | None, refused: str
    ) -> tuple[int, str]:
        async with asyncio.timeout(READ_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            verb, _, rest = head.partition(" ")
            path = rest.split(" ", 1)[0]
            if verb == "GET" and refused:
                return 403, refused
            if verb == "GET" and path == "/slurm.v1/State" and proofs is None:
                return 200, msgspec.json.encode(self._state()).decode() + "\n"
            handler = self._methods.get(path)
            if verb != "POST" or handler is None:
                return 404, f"there is no {verb} {path[:80]}\n"
            length = _header(head, "content-length")
            if not length.isdecimal() or int(length) > MAX_BODY:
                return 400, "Content-Length is missing or too large\n"
            body = await reader.readexactly(int(length))
            if refused:  # said when all was read: else the kernel drops the answer
                return 403, refused
            try:
                problem = await proofs.problem(head, body) if proofs is not None else ""
            except MungeError as error:
                return 503, f"MUNGE does not answer here: {error}\n"  # the hook asks again
            if problem:
                _log.warning("a hook over TCP was refused: %s", problem)
                return 401, f"{problem}\n"
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


def _header(head: str, name: str) -> str:
    """A header's value; empty where there is none."""
    for line in head.split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.strip().lower() == name:
            return value.strip()
    return ""
