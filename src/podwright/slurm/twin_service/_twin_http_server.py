"""The service's HTTP server: questions over a Unix socket and over TCP, each with the user who
asks.

On the socket the kernel says who asks. Over TCP a question is the payload of a MUNGE credential,
which is accepted once only. Only root and SlurmUser may ask as another user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from podwright.errors import Denied, InvalidRequest, NoCapacity, PodwrightError, Unauthenticated
from podwright.hosts import MungeError, Vouches
from podwright.http import HttpRequest, HttpServer, Limits, Reply, refused
from podwright.slurm.twin_service._twin_question import TwinAnswer, TwinQuestion
from podwright.slurm.twin_service._warm_twins import WarmTwins

_log = logging.getLogger("podwright.twin")
ASK_PATH: Final = "/slurm-twin.v1/Ask"
STATUS_PATH: Final = "/slurm-twin.v1/Status"
_BODY_LIMIT_BYTES: Final = 128 * 1024  # bytes: MOST_OPTIONS of LONGEST_OPTION
LOCAL_LIMITS: Final = Limits(
    connections=512, each=32, idle=120.0, body=_BODY_LIMIT_BYTES, all_bodies=16 * _BODY_LIMIT_BYTES
)
#: A caller without a credential must not use up the whole service.
REMOTE_LIMITS: Final = Limits(
    connections=256,
    each=32,
    idle=120.0,
    body=_BODY_LIMIT_BYTES,
    all_bodies=16 * _BODY_LIMIT_BYTES,
    patience=0.1,
)


class TwinFront:
    """Answers questions: `local` those on a Unix socket, `remote` those of callers over TCP who
    have a MUNGE credential.

    is_privileged: whether a user may ask as another one. munge: proves users over TCP.
    """

    def __init__(
        self,
        twins: WarmTwins,
        is_privileged: Callable[[int], bool],
        munge: Vouches | None = None,
    ) -> None:
        self._twins = twins
        self._is_privileged = is_privileged
        self._munge = munge
        self.local = HttpServer(self.answer, LOCAL_LIMITS)
        self.remote = HttpServer(self.answer, REMOTE_LIMITS)

    async def finish(self, seconds: float) -> None:
        """Accept no more connections, and let open questions finish within `seconds`."""
        await asyncio.gather(self.local.stop(seconds), self.remote.stop(seconds))

    async def answer(self, request: HttpRequest) -> Reply:
        """Return the reply to a request."""
        try:
            if (request.method, request.path) == ("GET", STATUS_PATH):
                return Reply(200, msgspec.json.encode(self._twins.status()))
            if (request.method, request.path) != ("POST", ASK_PATH):
                return refused(InvalidRequest("there is no such call"))._replace(status=404)
            uid = request.uid if request.uid is not None else await self._authenticated_uid(request)
            twin_answer = await self._answer_question(uid, request.body)
            return Reply(200, msgspec.json.encode(twin_answer))
        except PodwrightError as error:
            return refused(error)

    async def _answer_question(self, uid: int, question_json: bytes) -> TwinAnswer:
        try:
            question = msgspec.json.decode(question_json, type=TwinQuestion)
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"the question cannot be read: {error}") from None
        question.submission()
        if question.as_uid not in (None, uid) and not self._is_privileged(uid):
            raise Denied("only root and SlurmUser may ask as another user")
        if question.as_uid is not None and not 0 <= question.as_uid < 0xFFFFFFFE:
            raise InvalidRequest("as_uid is not a user id")
        return await asyncio.wrap_future(self._twins.ask(uid, question))

    async def _authenticated_uid(self, request: HttpRequest) -> int:
        """Return the uid of the user who asks. Raises Unauthenticated, and NoCapacity without
        MUNGE.
        """
        scheme, _, credential = request.header("authorization").partition(" ")
        if self._munge is None or scheme.lower() != "munge":
            raise Unauthenticated("over TCP a question needs a MUNGE credential")
        try:
            holder = await asyncio.to_thread(self._munge.decode, credential.strip())
        except MungeError as error:
            if error.absent:
                raise NoCapacity(f"MUNGE does not answer here: {error}") from None
            raise Unauthenticated(f"MUNGE credential: {error}") from None
        if holder.payload != request.body:
            raise Unauthenticated("the MUNGE credential is that of another question")
        return holder.uid
