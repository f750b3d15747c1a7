"""What gRPC writes into the heads and trailers of HTTP/2, and around its messages.

Our own heads use no table of the connection's: they are the same bytes each time.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

Metadata = tuple[tuple[str, str | bytes], ...]

_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
#: What a status' message may hold unchanged; all else is percent-encoded.
_PLAIN = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


class Status(Exception):
    """A call's end other than good. code: gRPC's number. metadata: binary ones, in the trailers."""

    def __init__(self, code: int, message: str, metadata: Iterable[tuple[str, bytes]] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.metadata = tuple(metadata)


@dataclass(frozen=True, slots=True)
class Head:
    """A call's head. timeout: seconds, or None. http_status: why it is no call, or 0."""

    path: str
    metadata: Metadata
    timeout: float | None
    encoding: str
    http_status: int

    def message(self, body: bytearray, most: int) -> bytes:
        """The one message in a body. Raises Status."""
        if len(body) < 5 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
            raise Status(3, "a call has one whole message")
        data = bytes(memoryview(body)[5:])
        if not body[0]:
            return data
        if self.encoding not in ("gzip", "deflate"):
            raise Status(12, f"the compression {self.encoding[:20]!r} is not known here")
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, most + 1)
        except zlib.error:
            raise Status(3, "the message cannot be decompressed") from None
        if len(data) > most:
            raise Status(8, f"a message may have {most} bytes")
        return data


def read_head(fields: Iterable[tuple[bytes, bytes]]) -> Head:
    """The head that these fields make."""
    pseudo = {b":method": b"", b":path": b"", b"content-type": b"", b"grpc-encoding": b""}
    timeout: float | None = None
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in pseudo:
            pseudo[name] = value
        elif name == b"grpc-timeout":
            timeout = _seconds(value.decode("latin-1"))
        elif name.endswith(b"-bin"):
            try:
                raw = base64.b64decode(value + b"=" * (-len(value) % 4))
            except binascii.Error:
                continue
            metadata.append((name.decode("latin-1"), raw))
        elif not name.startswith(b":"):
            metadata.append((name.decode("latin-1"), value.decode("latin-1")))
    bad = 0
    if not pseudo[b":path"]:
        bad = 400
    elif pseudo[b":method"] != b"POST":
        bad = 405
    elif not pseudo[b"content-type"].startswith(b"application/grpc"):
        bad = 415
    return Head(
        path=pseudo[b":path"].decode("latin-1"),
        metadata=tuple(metadata),
        timeout=timeout,
        encoding=pseudo[b"grpc-encoding"].decode("latin-1"),
        http_status=bad,
    )


def reply_head(status: int) -> bytes:
    """The header block that begins an answer."""
    if status == 200:
        return _GOOD
    return b"\x08" + _text(b"%d" % status)  # a literal, its name by the static table


def trailers(refusal: Status | None) -> bytes:
    """The header block that ends an answer."""
    if refusal is None:
        return _DONE
    fields = [
        (b"grpc-status", b"%d" % refusal.code),
        (b"grpc-message", quote(refusal.message, safe=_PLAIN).encode()),
        *((k.encode(), base64.b64encode(v).rstrip(b"=")) for k, v in refusal.metadata),
    ]
    return b"".join(_field(name, value) for name, value in fields)


def _seconds(text: str) -> float | None:
    number, unit = text[:-1], text[-1:]
    if not number.isascii() or not number.isdecimal() or len(number) > 8 or unit not in _UNITS:
        return None
    return int(number) * _UNITS[unit]


def _text(data: bytes) -> bytes:
    """A string of HPACK's, not compressed (RFC 7541, 5.1 and 5.2)."""
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    size -= 127
    head = bytearray((127,))
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    head.append(size)
    return bytes(head) + data


def _field(name: bytes, value: bytes) -> bytes:
    return b"\x00" + _text(name) + _text(value)


_GOOD = (
    b"\x88"  # :status 200, of the static table
    + _field(b"content-type", b"application/grpc")
    + _field(b"grpc-accept-encoding", b"identity,deflate,gzip")
)
_DONE = _field(b"grpc-status", b"0")
