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
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol

import msgspec

from podwright.errors import PodwrightError
from podwright.guests.slurm.hooks._active_standby_roles import ROLE_PATH as ROLE
from podwright.guests.slurm.hooks._hook_request_proofs import HookIdentity
from podwright.guests.slurm.service._hook_job_request import HookJob, hook_job
from podwright.hosts import MungeError
from podwright.http import STATUS_BY_CODE, HttpRequest, HttpServer, Limits, Reply

_log = logging.getLogger("podwright.slurm")
#: A hook asks once and leaves. The hooks of a whole machine may come at once, all as one user.
LOCAL_LIMITS = Limits(connections=8192, each=8192, idle=5.0, body=64 * 1024)
#: A caller without a credential must not use up the whole service.
REMOTE_LIMITS = Limits(connections=256, each=256, idle=5.0, body=64 * 1024, patience=0.1)
#: The statuses after which a hook does not ask again.
_FINAL = (400, 403, 404)
Handler = Callable[[HookJob], Awaitable[str]]


class Answers(Protocol):
    """The handlers of what hooks and steps ask. They raise PodwrightError."""

    async def begin_job(self, job: HookJob) -> str:
        """Handle the start of a job."""
        ...

    async def end_job(self, job: HookJob) -> str:
        """Handle the end of a job."""
        ...

    async def failed(self, job: HookJob) -> str:
        """Handle a failure of the site's own prolog."""
        ...

    async def prove_step(self, job: HookJob) -> str:
        """Check that a step may begin."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what GET /slurm.v1/State shows to callers on this host."""
        ...

    def role(self) -> str:
        """Return what GET /slurm.v1/Role tells everybody: `active` or `standby`."""
        ...


class HookFront:
    """Answers hooks and steps: `local` those on a Unix socket.

    proofs: checks requests over TCP. uids: the users who may use the Unix socket; None: the
    socket's file mode alone decides.
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
            "/slurm.v1/JobBegins": answers.begin_job,
            "/slurm.v1/JobEnded": answers.end_job,
            "/slurm.v1/PrologFailed": answers.failed,
            "/slurm.v1/StepBegins": answers.prove_step,
        }
        self.local = HttpServer(self._answer_local, LOCAL_LIMITS)
        self._remote = HttpServer(self._answer_remote, REMOTE_LIMITS)
        self._address = ""

    async def start_remote(self, listener: socket.socket, own_address: str = "") -> None:
        """Answer callers over TCP who prove who they are. own_address: the address by which others
        know this service.
        """
        self._address = own_address
        await self._remote.start(listener)

    async def finish(self, seconds: float) -> None:
        """Accept no more connections, and let open requests finish within `seconds`."""
        await asyncio.gather(self.local.stop(seconds), self._remote.stop(seconds))

    async def _answer_local(self, request: HttpRequest) -> Reply:
        if self._uids is not None and request.uid not in self._uids:
            return _text_reply(403, f"user {request.uid} is not Slurm's\n")
        if (request.method, request.path) == ("GET", "/slurm.v1/State"):
            return Reply(200, msgspec.json.encode(self._answers.state()) + b"\n")
        return await self._answer(request, None)

    async def _answer_remote(self, request: HttpRequest) -> Reply:
        authorization = request.header("authorization")
        role = (request.method, request.path) == ("GET", ROLE)
        if role:  # with our own address, so that a reply passed on by another host is refused
            reply = _text_reply(200, f"{self._answers.role()} {self._address}\n")
        else:
            reply = await self._answer(request, self._proofs)
        if self._proofs is None or (role and not authorization):
            return reply
        return await self._proofs.signed(reply, authorization)

    async def _answer(self, request: HttpRequest, proofs: HookIdentity | None) -> Reply:
        handler = self._methods.get(request.path)
        if request.method != "POST" or handler is None:
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
        return _text_reply(*await self._call_handler(handler, request.body))

    async def _call_handler(self, handler: Handler, request_body: bytes) -> tuple[int, str]:
        try:
            return 200, await handler(hook_job(request_body))
        except PodwrightError as error:
            status = STATUS_BY_CODE.get(error.code, 503)
            return status if status in _FINAL else 503, f"{error}\n"
        except Exception:
            _log.exception("a hook's request failed")
            return 500, "a fault in the service: see its log\n"


def _text_reply(status: int, body_text: str) -> Reply:
    return Reply(status, body_text.encode(), "text/plain", ((b"connection", b"close"),))
