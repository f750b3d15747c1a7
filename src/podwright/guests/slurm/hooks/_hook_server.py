"""The HTTP server for hooks: each POST over a Unix socket gets one reply. Only root and Slurm's
user may call it.

The hook speaks HTTP/1.0 and makes one request per connection. Its work goes on when the hook goes
away: the hook asks again, and finds the work done. A hook on another host connects over TCP and
proves who it is, and the reply to it is proven in the same way (`_hook_request_proofs`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from podwright.errors import PodwrightError, Unavailable
from podwright.guests.slurm.hooks._active_standby_roles import Peers, StandbyRole
from podwright.guests.slurm.hooks._hook_request_proofs import HookIdentity
from podwright.guests.slurm.service._hook_calls import JobCalls
from podwright.guests.slurm.service._hook_job_request import ROLE_PATH, HookJob, hook_job
from podwright.hosts import MungeError
from podwright.http import STATUS_BY_CODE, HttpRequest, HttpServer, Limits, Reply

_log = logging.getLogger("podwright.slurm")
#: A hook asks once and leaves. The hooks of a whole machine may come at once, all as one user.
LOCAL_LIMITS = Limits(connections=8192, each=8192, idle=5.0, body=64 * 1024)
#: A caller without a credential must not use up the whole service.
REMOTE_LIMITS = Limits(connections=256, each=256, idle=5.0, body=64 * 1024, patience=0.1)
#: The statuses after which a hook does not ask again.
_FINAL = (400, 403, 404)
_STEP_BEGINS: Final = "/slurm.v1/StepBegins"
_CALLS: Final[Mapping[str, Callable[[JobCalls, HookJob], Awaitable[str]]]] = {
    "/slurm.v1/JobBegins": lambda calls, job: calls.begin_job(job),
    "/slurm.v1/JobEnded": lambda calls, job: calls.end_job(job),
    "/slurm.v1/PrologFailed": lambda calls, job: calls.failed(job),
    _STEP_BEGINS: lambda calls, job: calls.prove_step(job),
}


class HookFront:
    """Hands each request of hooks and steps to the calls of the site's way of scheduling.

    peers: the other services; None: there are none. proving: answers steps, as soon as the server
    has said who holds what. working: answers hooks, when Slurm has listed its jobs as well. Until
    then, and where another service is the active one, callers are told to ask again.
    """

    def __init__(self) -> None:
        self.peers: Peers | None = None
        self.proving: JobCalls | None = None
        self.working: JobCalls | None = None
        self._servers: list[HttpServer] = []

    async def start(self, listener: socket.socket, uids: Collection[int] | None = None) -> None:
        """Answer callers on a Unix socket. uids: who may call; None: the socket's mode decides."""
        await self._start_server(listener, partial(self._answer_local, uids), LOCAL_LIMITS)

    async def start_remote(
        self, listener: socket.socket, proofs: HookIdentity, own_address: str = ""
    ) -> None:
        """Answer callers over TCP who prove who they are. own_address: the address by which others
        know this service.
        """
        handler = partial(self._answer_remote, proofs, own_address)
        await self._start_server(listener, handler, REMOTE_LIMITS)

    def leave(self) -> None:
        """Answer no steps and no hooks from here on."""
        self.proving = self.working = None

    def role(self) -> str:
        """Return the role that GET /slurm.v1/Role tells everybody: `active` or `standby`."""
        return (self.peers.role if self.peers else StandbyRole.ACTIVE).value

    def state(self) -> dict[str, Any]:
        """Return what GET /slurm.v1/State shows to callers on this host. `ready` is True once hooks
        are answered.
        """
        if self.working is not None:
            return {"role": self.role(), "ready": True, **self.working.state()}
        address = self.peers.active if self.peers else ""
        return {"role": self.role(), "ready": False, "active": address}

    async def finish(self, seconds: float) -> None:
        """Accept no more connections, and let open requests finish within `seconds`."""
        await asyncio.gather(*(server.stop(seconds) for server in self._servers))

    async def _start_server(
        self,
        listener: socket.socket,
        handler: Callable[[HttpRequest], Awaitable[Reply]],
        limits: Limits,
    ) -> None:
        server = HttpServer(handler, limits)
        await server.start(listener)
        self._servers.append(server)

    async def _answer_local(self, uids: Collection[int] | None, request: HttpRequest) -> Reply:
        if uids is not None and request.uid not in uids:
            return _text_reply(403, f"user {request.uid} is not Slurm's\n")
        if (request.method, request.path) == ("GET", "/slurm.v1/State"):
            return Reply(200, msgspec.json.encode(self.state()) + b"\n")
        return await self._answer(request)

    async def _answer_remote(
        self, proofs: HookIdentity, own_address: str, request: HttpRequest
    ) -> Reply:
        authorization = request.header("authorization")
        role = (request.method, request.path) == ("GET", ROLE_PATH)
        if role:  # with our own address, so that a reply passed on by another host is refused
            reply = _text_reply(200, f"{self.role()} {own_address}\n")
        else:
            reply = await self._answer(request, proofs)
        if role and not authorization:
            return reply
        return await proofs.signed(reply, authorization)

    async def _answer(self, request: HttpRequest, proofs: HookIdentity | None = None) -> Reply:
        if request.method != "POST" or request.path not in _CALLS:
            return _text_reply(404, f"there is no {request.method} {request.path[:80]}\n")
        if proofs is not None:
            try:
                authorization = request.header("authorization")
                problem = await proofs.problem(authorization, request.path, request.body)
            except MungeError as error:
                # The hook tries again after a 503.
                return _text_reply(503, f"MUNGE does not answer here: {error}\n")
            if problem:
                _log.warning("a hook over TCP was refused: %s", problem)
                return _text_reply(401, f"{problem}\n")
        try:
            calls = self._calls(steps=request.path == _STEP_BEGINS)
            return _text_reply(200, await _CALLS[request.path](calls, hook_job(request.body)))
        except PodwrightError as error:
            status = STATUS_BY_CODE.get(error.code, 503)
            return _text_reply(status if status in _FINAL else 503, f"{error}\n")
        except Exception:
            _log.exception("a hook's request failed")
            return _text_reply(500, "a fault in the service: see its log\n")

    def _calls(self, *, steps: bool) -> JobCalls:
        calls = self.proving if steps else self.working
        if calls is not None:
            return calls
        if self.peers and self.peers.role is not StandbyRole.ACTIVE:
            active = self.peers.active
            raise Unavailable(f"stands by{f': active is {active}' if active else ''}")
        raise Unavailable("begins: vipu-server and slurmctld have not answered yet")


def _text_reply(status: int, body_text: str) -> Reply:
    return Reply(status, body_text.encode(), "text/plain", ((b"connection", b"close"),))
