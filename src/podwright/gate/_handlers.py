"""The handler of every gRPC call, by its path. It decodes bytes, asks the server, and encodes a
reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from podwright.errors import InvalidRequest
from podwright.gate._link import ShownService
from podwright.gate._virm_handlers import ANSWERS, Answer, Asker
from podwright.wire import METHODS, Method, messages, munge_payload, virm

#: Makes the function that asks the server on behalf of the caller with these credentials.
Caller = Callable[[ShownService], Asker]
#: Takes a Caller, the path, the message and the credentials. Raises wire.PodwrightError.
Handler = Callable[[Callable[[ShownService], Asker], str, bytes, ShownService], Awaitable[bytes]]


def handlers() -> dict[str, Handler]:
    """Return the handler of every path."""
    ours = {messages.method_path(name): _ours(method) for name, method in METHODS.items()}
    theirs = {m.path: _theirs(m, ANSWERS[name]) for name, m in virm.VIRM_METHODS.items()}
    return ours | theirs


def _prove(path: str, data: bytes, service: ShownService) -> ShownService:
    """Add the payload that a MUNGE credential must have, if the caller showed such a credential."""
    if any(
        key == "authorization" and text[:5].lower() == "munge" for key, text in service.metadata
    ):
        return msgspec.structs.replace(service, proof=munge_payload(path, data))
    return service


def _ours(method: Method) -> Handler:
    async def answer(caller: Caller, path: str, data: bytes, service: ShownService) -> bytes:
        request = messages.decode(method.request, data)
        reply = await caller(_prove(path, data, service))(method, request)
        return messages.encode(reply)

    return answer


def _theirs(method: virm.VirmMethod, answer_message: Answer) -> Handler:
    async def answer(caller: Caller, path: str, data: bytes, service: ShownService) -> bytes:
        try:
            message: Any = method.request.FromString(data)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            raise InvalidRequest(f"these {len(data)} bytes are not a message {name}") from None
        reply = await answer_message(caller(_prove(path, data, service)), message)
        encoded: bytes = reply.SerializeToString()
        return encoded

    return answer
