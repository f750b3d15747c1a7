"""The messages between the gate and its server, over a pair of sockets that only these two have.

Each message is a msgspec value in MessagePack, behind its length in four bytes. The server trusts
the gate for one fact: whose certificate a connection showed. The server checks keys, tokens and
MUNGE credentials itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

#: The limit in bytes of a message from the gate: a call of 1 MiB, and its sender.
MAX_LINK_MESSAGE_BYTES = 8 * 1024 * 1024


class ShownCredentials(msgspec.Struct, array_like=True):
    """The credentials that a caller shows.

    metadata: the keys that `Identity.caller_of_metadata` reads. proof: the payload that a MUNGE
    credential must have. certificate: name and URI (wire.user_of). peer: address of the other end.
    """

    metadata: list[tuple[str, str]] = []
    proof: bytes = b""
    certificate: tuple[str, str] = ("", "")
    peer: str = ""


class Question(msgspec.Struct, array_like=True, tag=0):
    """A call. request: the value in MessagePack. method: empty asks whether the server is well."""

    id: int
    method: str
    request: bytes
    shown: ShownCredentials


class Cancel(msgspec.Struct, array_like=True, tag=1):
    """The caller has given up this call."""

    id: int


class Done(msgspec.Struct, array_like=True, tag=2):
    """A call's reply, in MessagePack."""

    id: int
    reply: bytes


class GateRefused(msgspec.Struct, array_like=True, tag=3):
    """The refusal of a call: PodwrightError.to_json."""

    id: int
    error: dict[str, Any]


class End(msgspec.Struct, array_like=True, tag=4):
    """Asks the gate to accept no more calls, and gives those under way some seconds."""

    grace: float


class GateCounted(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """The number of the gate's connections. open: have a place. waiting: are in the queue.

    All other fields count connections since the gate began, by why they ended. refused: there was
    no room. busy: their calls were refused, with a time to try again. evicted: they were silent,
    and their room was needed. memory: they had sent the most bytes when memory ran short. flood:
    they sent too many bytes outside calls. descriptors: how often no file descriptor was left.
    """

    open: int = 0
    waiting: int = 0
    refused: int = 0
    busy: int = 0
    evicted: int = 0
    memory: int = 0
    flood: int = 0
    descriptors: int = 0

    def counts_by_reason(self) -> dict[str, int]:
        """Return the counts of connections that were ended or refused, by reason."""
        return {reason: getattr(self, reason) for reason in self.__struct_fields__[2:]}


LinkMessage = Question | Cancel | Done | GateRefused | End | GateCounted
_T = TypeVar("_T", bound=LinkMessage)
_encode_message = msgspec.msgpack.Encoder(enc_hook=str).encode


class GateLink(Generic[_T]):
    """One end of the link. message_types: the messages that the other end sends. size_limit: bytes
    of the longest message that is accepted.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        message_types: Any,
        size_limit: int = 1 << 32,
    ) -> None:
        self._reader, self._writer, self._size_limit = reader, writer, size_limit
        self._buffer = bytearray()
        self._decode: Callable[[bytes], _T] = msgspec.msgpack.Decoder(message_types).decode

    async def hear(self) -> _T | None:
        """Return the next message. None: the other end has gone, or sent a message that is not
        valid.
        """
        buffer = self._buffer
        try:
            while len(buffer) < 4 or len(buffer) < 4 + (
                message_size := int.from_bytes(buffer[:4], "big")
            ):
                if len(buffer) >= 4 and message_size > self._size_limit:
                    return None
                chunk = await self._reader.read(1 << 17)
                if not chunk:
                    return None
                buffer += chunk
            message_bytes = bytes(memoryview(buffer)[4 : 4 + message_size])
            del buffer[: 4 + message_size]
            return self._decode(message_bytes)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def send(self, link_message: LinkMessage) -> None:
        """Send a message to the other end, which may have gone."""
        if not self._writer.is_closing():
            message_bytes = _encode_message(link_message)
            self._writer.write(len(message_bytes).to_bytes(4, "big") + message_bytes)

    async def drained(self) -> None:
        """Wait while the other end does not keep up. Raises OSError when it has gone."""
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def to_server(connection: socket.socket) -> GateLink[Done | GateRefused | End]:
    """Return the gate's end of a pair of sockets."""
    return GateLink(*await asyncio.open_unix_connection(sock=connection), Done | GateRefused | End)


async def from_server(connection: socket.socket) -> GateLink[Question | Cancel | GateCounted]:
    """Return the server's end of a pair of sockets."""
    streams = await asyncio.open_unix_connection(sock=connection)
    return GateLink(*streams, Question | Cancel | GateCounted, MAX_LINK_MESSAGE_BYTES)
