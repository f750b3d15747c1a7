"""What the gate and its server say to one another, over a pair of sockets that nobody else has.

Each word is a msgspec value in MessagePack, behind its length in four bytes. The server believes
the gate in one thing: whose certificate a connection showed. Keys, tokens and MUNGE credentials
it checks itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

#: Bytes of a word from the gate: a message of 1 MiB, and who sent it.
MAX_WORD = 8 * 1024 * 1024


class ShownService(msgspec.Struct, array_like=True):
    """Who a caller says it is.

    metadata: what `Identity.of_metadata` reads. proof: what a MUNGE credential must carry.
    certificate: name and URI (wire.user_of). peer: address of the other end.
    """

    metadata: list[tuple[str, str]] = []
    proof: bytes = b""
    certificate: tuple[str, str] = ("", "")
    peer: str = ""


class Question(msgspec.Struct, array_like=True, tag=0):
    """A call. request: the value in MessagePack. method: empty asks whether all is well."""

    id: int
    method: str
    request: bytes
    shown: ShownService


class Cancel(msgspec.Struct, array_like=True, tag=1):
    """Nobody waits for this call any more."""

    id: int


class Done(msgspec.Struct, array_like=True, tag=2):
    """A call's reply, in MessagePack."""

    id: int
    reply: bytes


class GateRefused(msgspec.Struct, array_like=True, tag=3):
    """Why there is none: PodwrightError.to_json."""

    id: int
    error: dict[str, Any]


class End(msgspec.Struct, array_like=True, tag=4):
    """Accept no more; calls under way have so many seconds."""

    grace: float


class GateCounted(msgspec.Struct, array_like=True, tag=5, frozen=True):
    """The gate's connections. open: that stand. The others: ended since it began, and why.

    refused: no room. evicted: silent, and the room was needed. memory: it sent most when there was
    too little. flood: it sent too much beside its calls. descriptors: times that none was left.
    """

    open: int = 0
    refused: int = 0
    evicted: int = 0
    memory: int = 0
    flood: int = 0
    descriptors: int = 0

    def ended(self) -> dict[str, int]:
        """Connections by why they were ended or not taken."""
        return {why: getattr(self, why) for why in self.__struct_fields__[1:]}


Word = Question | Cancel | Done | GateRefused | End | GateCounted
_T = TypeVar("_T", bound=Word)
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode


class GateLink(Generic[_T]):
    """One end. kind: what the other end says. most: bytes of a word that is believed."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        kind: Any,
        most: int = 1 << 32,
    ) -> None:
        self._reader, self._writer, self._most = reader, writer, most
        self._buffer = bytearray()
        self._decode: Callable[[bytes], _T] = msgspec.msgpack.Decoder(kind).decode

    async def hear(self) -> _T | None:
        """The next word; None: the other end has gone, or says what nobody understands."""
        buffer = self._buffer
        try:
            while len(buffer) < 4 or len(buffer) < 4 + (size := int.from_bytes(buffer[:4], "big")):
                if len(buffer) >= 4 and size > self._most:
                    return None
                more = await self._reader.read(1 << 17)
                if not more:
                    return None
                buffer += more
            data = bytes(memoryview(buffer)[4 : 4 + size])
            del buffer[: 4 + size]
            return self._decode(data)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def say(self, word: Word) -> None:
        """Tell the other end, which may have gone."""
        if not self._writer.is_closing():
            data = _encode(word)
            self._writer.write(len(data).to_bytes(4, "big") + data)

    async def drained(self) -> None:
        """Wait while the other end does not keep up. Raises OSError when it has gone."""
        await self._writer.drain()

    def close(self) -> None:
        """Say no more, hear no more."""
        self._writer.close()


async def to_server(connection: socket.socket) -> GateLink[Done | GateRefused | End]:
    """The gate's end of a pair of sockets."""
    return GateLink(*await asyncio.open_unix_connection(sock=connection), Done | GateRefused | End)


async def from_server(connection: socket.socket) -> GateLink[Question | Cancel | GateCounted]:
    """The server's end of a pair of sockets."""
    ends = await asyncio.open_unix_connection(sock=connection)
    return GateLink(*ends, Question | Cancel | GateCounted, MAX_WORD)
