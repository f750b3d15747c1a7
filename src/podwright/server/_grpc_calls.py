"""Every gRPC call's handler, by its path: bytes in, our calls, bytes out.

Imported at the first call: protobuf takes long to import, and a server that a command starts is
waited for, while most commands never use its TCP port.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError

from podwright.controller import Caller
from podwright.server._calls import Calls
from podwright.server._grpc_heads import Head, Status
from podwright.server._identity import ANONYMOUS
from podwright.server._virm import ANSWERS, Answer
from podwright.wire import METHODS, Internal, InvalidRequest, Method, PodwrightError, messages, virm

_log = logging.getLogger("podwright.server")

#: A refusal's code -> gRPC's number.
_STATUS = {
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}


#: The message, the call's head, and whose the connection's certificate is (wire.user_of).
#: Raises Status.
Handler = Callable[[bytes, Head, tuple[str, str]], Awaitable[bytes]]


def handlers(calls: Calls) -> dict[str, Handler]:
    """The handler of every path."""
    ours = {messages.method_path(name): _ours(calls, m) for name, m in METHODS.items()}
    theirs = {m.path: _theirs(calls, m, ANSWERS[name]) for name, m in virm.VIRM_METHODS.items()}
    return ours | theirs


async def _caller(calls: Calls, data: bytes, head: Head, shown: tuple[str, str]) -> Caller:
    return await calls.identity.of_metadata(head.metadata, head.path, data, shown)


def _ours(calls: Calls, method: Method) -> Handler:
    async def answer(data: bytes, head: Head, shown: tuple[str, str]) -> bytes:
        if method.name == "AnnounceAgent":  # a hint, which anybody may give
            caller = ANONYMOUS
        else:
            caller = await _caller(calls, data, head, shown)
        reply = await calls(caller, method, messages.decode(method.request, data))
        return messages.encode(reply)

    return _refusing(method.name, answer)


def _theirs(calls: Calls, method: virm.VirmMethod, answer_message: Answer) -> Handler:
    async def answer(data: bytes, head: Head, shown: tuple[str, str]) -> bytes:
        caller = await _caller(calls, data, head, shown)
        try:
            message = method.request.FromString(data)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            raise InvalidRequest(f"these {len(data)} bytes are no {name}") from None
        reply: bytes = (await answer_message(calls, caller, message)).SerializeToString()
        return reply

    return _refusing(method.path.rpartition("/")[2], answer)


def _refusing(name: str, answer: Handler) -> Handler:
    """A refusal becomes its status code, its sentence, and its JSON in trailing metadata."""

    async def handler(data: bytes, head: Head, shown: tuple[str, str]) -> bytes:
        try:
            return await answer(data, head, shown)
        except PodwrightError as error:
            refusal = error
        except Exception:
            _log.exception("%s failed", name)
            refusal = Internal("the server failed", asked=name, would_work="its log says more")
        raise Status(
            _STATUS.get(refusal.code, 2), refusal.message[:1000], messages.error_metadata(refusal)
        )

    return handler
