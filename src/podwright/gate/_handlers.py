"""The handler of every gRPC call, by its path. It decodes bytes, asks the server, and encodes a
reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from google.protobuf.message import DecodeError

from podwright.errors import InvalidRequest
from podwright.gate._gate_server_link import ShownCredentials
from podwright.gate._virm_handlers import ANSWERS, Answer, Asker
from podwright.wire import METHODS, Method, messages, munge_payload, virm

#: Makes the function that asks the server on behalf of the caller with these credentials.
Caller = Callable[[ShownCredentials], Asker]
#: Takes a Caller, the path, the message and the credentials. Raises wire.PodwrightError.
Handler = Callable[
    [Callable[[ShownCredentials], Asker], str, bytes, ShownCredentials], Awaitable[bytes]
]


def handlers() -> dict[str, Handler]:
    """Return the handler of every path."""
    own_handlers = {
        messages.method_path(name): _own_handler(method) for name, method in METHODS.items()
    }
    vendor_handlers = {
        vendor_method.path: _vendor_handler(vendor_method, ANSWERS[name])
        for name, vendor_method in virm.VIRM_METHODS.items()
    }
    return own_handlers | vendor_handlers


def _with_munge_proof(
    method_path: str, message_bytes: bytes, credentials: ShownCredentials
) -> ShownCredentials:
    """Add the payload that a MUNGE credential must have, if the caller showed such a credential."""
    if any(
        name == "authorization" and header_value[:5].lower() == "munge"
        for name, header_value in credentials.metadata
    ):
        return msgspec.structs.replace(credentials, proof=munge_payload(method_path, message_bytes))
    return credentials


def _own_handler(method: Method) -> Handler:
    async def answer(
        asker_for: Caller, method_path: str, message_bytes: bytes, credentials: ShownCredentials
    ) -> bytes:
        request = messages.decode(method.request, message_bytes)
        reply = await asker_for(_with_munge_proof(method_path, message_bytes, credentials))(
            method, request
        )
        return messages.encode(reply)

    return answer


def _vendor_handler(method: virm.VirmMethod, answer_message: Answer) -> Handler:
    async def answer(
        asker_for: Caller, method_path: str, message_bytes: bytes, credentials: ShownCredentials
    ) -> bytes:
        try:
            message: Any = method.request.FromString(message_bytes)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            raise InvalidRequest(
                f"these {len(message_bytes)} bytes are not a message {name}"
            ) from None
        reply = await answer_message(
            asker_for(_with_munge_proof(method_path, message_bytes, credentials)), message
        )
        reply_bytes: bytes = reply.SerializeToString()
        return reply_bytes

    return answer
