"""Compressed heads (HPACK, RFC 7541), read. Ours are written without any compression.

No larger than what it has to bound: the table, the strings and the whole of a head.
"""

from __future__ import annotations

from collections import deque
from functools import cache

Field = tuple[bytes, bytes]

#: Bytes of the dynamic table, as HTTP/2 has it unless told otherwise.
TABLE_SIZE = 4096
#: What RFC 7541 adds to the bytes of each field.
_OVERHEAD = 32

#: RFC 7541, appendix A: name, or name=value; a blank is written as _.
_STATIC_WORDS = """
:authority :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https
:status=200 :status=204 :status=206 :status=304 :status=400 :status=404 :status=500
accept-charset accept-encoding=gzip,_deflate accept-language accept-ranges accept
access-control-allow-origin age allow authorization cache-control content-disposition
content-encoding content-language content-length content-location content-range content-type
cookie date etag expect expires from host if-match if-modified-since if-none-match if-range
if-unmodified-since last-modified link location max-forwards proxy-authenticate
proxy-authorization range referer refresh retry-after server set-cookie
strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""
_STATIC: tuple[Field, ...] = tuple(
    (name.encode(), value.replace("_", " ").encode())
    for name, _, value in (word.partition("=") for word in _STATIC_WORDS.split())
)

#: RFC 7541, appendix B: how many bits each byte takes, and the end, in base 36. The codes follow
#: from that: they grow by length and then by byte.
_LENGTHS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6cad677777777777777777777"
    "77878djde6f56565666577666567655677777fbedskmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmo"
    "lmnnllmlnmnnkmmmnmmnqqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrqu"
)
_END = 256


class HpackError(Exception):
    """A head that cannot be read, after which the tables of both sides differ."""


class TooLong(HpackError):
    """A head with more than it may have."""


def _huffman() -> dict[int, int]:
    """Code, after a leading one -> byte."""
    codes, code, before = {}, 0, 0
    for length, byte in sorted((int(digit, 36), byte) for byte, digit in enumerate(_LENGTHS)):
        code <<= length - before
        before = length
        codes[1 << length | code] = byte
        code += 1
    return codes


_CODES = _huffman()


class Decoder:
    """Reads the heads of one connection, in their order. most: bytes of a head's fields."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._table: deque[Field] = deque()  # the newest first
        self._size = 0
        self._limit = TABLE_SIZE

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a whole block. Raises HpackError."""
        fields: list[Field] = []
        at, length = 0, 0
        try:
            while at < len(block):
                first = block[at]
                if first & 0x80:
                    index, at = _integer(block, at, 7)
                    field = self._field(index)
                elif first & 0x40:
                    field, at = self._literal(block, at, 6)
                    self._remember(field)
                elif first & 0x20:
                    size, at = _integer(block, at, 5)
                    if fields or size > TABLE_SIZE:
                        raise HpackError("the table cannot be resized so")
                    self._limit = size
                    self._shrink()
                    continue
                else:
                    field, at = self._literal(block, at, 4)
                fields.append(field)
                length += len(field[0]) + len(field[1]) + _OVERHEAD
                if length > self._most:
                    raise TooLong(f"a head may have {self._most} bytes")
        except IndexError:
            raise HpackError("a head ends too early") from None
        return fields

    def _field(self, index: int) -> Field:
        if not index:
            raise HpackError("there is no field 0")
        if index <= len(_STATIC):
            return _STATIC[index - 1]
        return self._table[index - len(_STATIC) - 1]

    def _literal(self, block: bytes, at: int, bits: int) -> tuple[Field, int]:
        index, at = _integer(block, at, bits)
        if index:
            name = self._field(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _remember(self, field: Field) -> None:
        self._table.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _OVERHEAD
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._limit:
            name, value = self._table.pop()
            self._size -= len(name) + len(value) + _OVERHEAD


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 28, 7):
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if not byte & 128:
            return value, at
    raise HpackError("a number is too large")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    packed = block[at] & 0x80
    size, at = _integer(block, at, 7)
    end = at + size
    if end > len(block):
        raise HpackError("a string is longer than its head")
    data = block[at:end]
    return _unpacked(data) if packed else data, end


def _unpacked(data: bytes) -> bytes:
    node, parts = 1, []
    for byte in data:
        node, part = _step(node, byte)
        parts.append(part)
    left = node.bit_length() - 1
    if left > 7 or node != (2 << left) - 1:
        raise HpackError("a string does not end as it must")
    return b"".join(parts)


@cache
def _step(node: int, byte: int) -> tuple[int, bytes]:
    """What eight bits more say. node: the bits of an unfinished code, after a leading one.

    There are 256 unfinished codes, so what is kept is bounded.
    """
    found = bytearray()
    for shift in range(7, -1, -1):
        node = node << 1 | byte >> shift & 1
        if (symbol := _CODES.get(node)) is not None:
            if symbol == _END:
                raise HpackError("a string says that it ends")
            found.append(symbol)
            node = 1
    return node, bytes(found)
