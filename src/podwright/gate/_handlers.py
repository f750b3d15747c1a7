"""Every gRPC call's handler, by its path: bytes in, a question to the server, bytes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from podwright.errors import InvalidRequest
from podwright.gate._link import ShownService
from podwright.gate._virm_handlers import ANSWERS, Answer, Asker
from podwright.wire import METHODS, Method, messages, munge_payload, virm

#: Makes what asks the server, for whoever showed this.
Caller = Callable[[ShownService], Asker]
#: How to ask, the path, the message, and what was shown. Raises wire.PodwrightError.
Handler = Callable[[Callable[[ShownService], Asker], str, bytes, ShownService], Awaitable[bytes]]


def handlers() -> dict[str, Handler]:
    """The handler of every path."""
    ours = {messages.method_path(name): _ours(method) for name, method in METHODS.items()}
    theirs = {m.path: _theirs(m, ANSWERS[name]) for name, m in virm.VIRM_METHODS.items()}
    return ours | theirs


def _proven(path: str, data: bytes, shown: ShownService) -> ShownService:
    """With what a MUNGE credential must have been made for, if one was shown."""
    if any(key == "authorization" and text[:5].lower() == "munge" for key, text in shown.metadata):
        return msgspec.structs.replace(shown, proof=munge_payload(path, data))
    return shown


def _ours(method: Method) -> Handler:
    async def answer(caller: Caller, path: str, data: bytes, shown: ShownService) -> bytes:
        request = messages.decode(method.request, data)
        reply = await caller(_proven(path, data, shown))(method, request)
        return messages.encode(reply)

    return answer


def _theirs(method: virm.VirmMethod, answer_message: Answer) -> Handler:
    async def answer(caller: Caller, path: str, data: bytes, shown: ShownService) -> bytes:
        try:
            message: Any = method.request.FromString(data)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            raise InvalidRequest(f"these {len(data)} bytes are no {name}") from None
        reply = await answer_message(caller(_proven(path, data, shown)), message)
        found: bytes = reply.SerializeToString()
        return found

    return answer
