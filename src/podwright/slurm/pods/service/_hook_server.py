"""The front for hooks: a POST and an answer over a Unix socket, for root and Slurm's user alone.

The hook speaks HTTP/1.0, one request a connection. What it asked for goes on although it goes
away: it asks again, and finds the work done. One on another host comes over TCP and proves itself,
and what it is answered is proven in the same way (`_hook_identity`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol

import msgspec

from podwright.errors import InvalidRequest, PodwrightError
from podwright.hosts import MungeError
from podwright.http import HttpRequest, HttpServer, Limits, Reply
from podwright.slurm.pods.service._hook_identity import HookIdentity
from podwright.slurm.pods.service._job_request import HookJob, hook_job
from podwright.slurm.pods.service._service_standby import PATH as ROLE

_log = logging.getLogger("podwright.slurm")
#: A hook asks once and goes. Slurm's hooks of a whole machine may come at once, all as one user.
LOCAL = Limits(connections=8192, each=8192, idle=5.0, body=64 * 1024)
#: Whoever has no credential must not take all of the service.
REMOTE = Limits(connections=256, each=256, idle=5.0, body=64 * 1024, patience=0.1)
_DECIDED = {"INVALID_ARGUMENT": 400, "PERMISSION_DENIED": 403, "NOT_FOUND": 404}
Handler = Callable[[HookJob], Awaitable[str]]


class Answers(Protocol):
    """What hooks and steps ask. Handlers raise PodwrightError."""

    async def begins(self, job: HookJob) -> str:
        """A job begins."""
        ...

    async def ended(self, job: HookJob) -> str:
        """A job has ended."""
        ...

    async def failed(self, job: HookJob) -> str:
        """The site's own prolog failed."""
        ...

    async def proves(self, job: HookJob) -> str:
        """May a step begin?"""
        ...

    def state(self) -> dict[str, Any]:
        """What GET /slurm.v1/State shows, to those of this host."""
        ...

    def role(self) -> str:
        """What GET /slurm.v1/Role says, to everybody: `active` or `standby`."""
        ...


class Front:
    """Answers hooks, and steps. proofs: what those over TCP show. uids: who may come by the socket;
    None: whom its mode lets in.
    """

    def __init__(
        self,
        answers: Answers,
        proofs: HookIdentity | None = None,
        uids: Collection[int] | None = None,
    ) -> None:
        self._answers = answers
        self._proofs = proofs
        self._uids = uids
        self._methods: dict[str, Handler] = {
            "/slurm.v1/JobBegins": answers.begins,
            "/slurm.v1/JobEnded": answers.ended,
            "/slurm.v1/PrologFailed": answers.failed,
            "/slurm.v1/StepBegins": answers.proves,
        }
        self._servers: list[HttpServer] = []
        self._at = ""

    async def start(self, listener: socket.socket) -> None:
        """Answer those who come by a Unix socket."""
        await self._start(listener, self._local, LOCAL)

    async def start_remote(self, listener: socket.socket, at: str = "") -> None:
        """Answer those over TCP who prove themselves. at: the address by which others know us."""
        self._at = at
        await self._start(listener, self._remote, REMOTE)

    async def finish(self, seconds: float) -> None:
        """Accept no more; let what was asked come to its end."""
        await asyncio.gather(*(server.stop(seconds) for server in self._servers))

    async def _start(
        self,
        listener: socket.socket,
        handler: Callable[[HttpRequest], Awaitable[Reply]],
        most: Limits,
    ) -> None:
        server = HttpServer(handler, most)
        await server.start(listener)
        self._servers.append(server)

    async def _local(self, request: HttpRequest) -> Reply:
        if self._uids is not None and request.uid not in self._uids:
            return _said(403, f"user {request.uid} is not Slurm's\n")
        if (request.method, request.path) == ("GET", "/slurm.v1/State"):
            return Reply(200, msgspec.json.encode(self._answers.state()) + b"\n")
        return await self._answer(request, None)

    async def _remote(self, request: HttpRequest) -> Reply:
        shown = request.header("authorization")
        asks_role = (request.method, request.path) == ("GET", ROLE)
        if asks_role:  # with whose word it is: one that is handed on is not believed
            reply = _said(200, f"{self._answers.role()} {self._at}\n")
        else:
            reply = await self._answer(request, self._proofs)
        if self._proofs is None or (asks_role and not shown):
            return reply
        return await self._proofs.signed(reply, shown)

    async def _answer(self, request: HttpRequest, proofs: HookIdentity | None) -> Reply:
        handler = self._methods.get(request.path)
        if request.method != "POST" or handler is None:
            return _said(404, f"there is no {request.method} {request.path[:80]}\n")
        if proofs is not None:
            try:
                shown = request.header("authorization")
                problem = await proofs.problem(shown, request.path, request.body)
            except MungeError as error:
                return _said(503, f"MUNGE does not answer here: {error}\n")  # the hook asks again
            if problem:
                _log.warning("a hook over TCP was refused: %s", problem)
                return _said(401, f"{problem}\n")
        return _said(*await self._call(handler, request.body))

    async def _call(self, handler: Handler, body: bytes) -> tuple[int, str]:
        try:
            return 200, await handler(hook_job(body))
        except InvalidRequest as error:
            return 400, f"{error}\n"
        except PodwrightError as error:
            return _DECIDED.get(error.code, 503), f"{error}\n"
        except Exception:
            _log.exception("a hook's request failed")
            return 500, "a fault in the service: see its log\n"


def _said(status: int, text: str) -> Reply:
    return Reply(status, text.encode(), "text/plain", ((b"connection", b"close"),))
