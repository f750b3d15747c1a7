"""Messages that nobody should send: made from good ones by a seeded hand, for every door."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import msgspec

from podwright.wire import (
    METHODS,
    AcquireRequest,
    AgentRequest,
    CreateRequest,
    ExplainRequest,
    PartitionSpec,
    Value,
    WaitRequest,
    messages,
    virm,
)
from podwright.wire.agent import AGENT_METHODS, AGENT_SERVICE

_SPEC = PartitionSpec(name="p1", size=4, devices=[(0, 1)])
#: Requests with something inside; the others are made of their fields.
_RICH: dict[type[Value], Value] = {
    CreateRequest: CreateRequest(spec=_SPEC, owner="alice", owner_uid=1, job="7"),
    AgentRequest: AgentRequest(name="p1", host="127.0.0.1", port=1),
    AcquireRequest: AcquireRequest(spec=_SPEC, create=True, holder="h", ttl=1.0),
    WaitRequest: WaitRequest(create=CreateRequest(spec=_SPEC), timeout=0.01),
    ExplainRequest: ExplainRequest(spec=_SPEC),
}
_TEXTS = ["", "p1", "a" * 300, "\x00", "../../etc/passwd", "é\u202e", "'; DROP TABLE", "%n%s", "\n"]
_NUMBERS: list[Any] = [0, -1, 1, 2**31, 2**63, -(2**63), 2**64 - 1, 1e308, 0.5, -0.0]
_ODD: list[Any] = [None, True, [], {}, [[[]]], {"a": {"b": []}}, ["x"] * 50]


class Hand:
    """Makes hostile messages. The same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    # -- bytes -------------------------------------------------------------------------------

    def garbage(self, most: int = 200) -> bytes:
        """Any bytes."""
        return self.random.randbytes(self.random.randrange(most + 1))

    def mutated(self, data: bytes) -> bytes:
        """Some bytes changed, lost, doubled or added."""
        found = bytearray(data)
        for _ in range(self.random.randrange(1, 6)):
            at = self.random.randrange(len(found) + 1)
            kind = self.random.randrange(5)
            if kind == 0 and found:
                found[at % len(found)] = self.random.randrange(256)
            elif kind == 1:
                del found[at : at + self.random.randrange(1, 9)]
            elif kind == 2:
                found[at:at] = self.garbage(20)
            elif kind == 3:
                found[at:at] = found[at : at + 40]
            else:
                del found[at:]
        return bytes(found)

    # -- requests ----------------------------------------------------------------------------

    def value(self, kind: type[Value]) -> Value:
        """A request of this kind, which may even be good."""
        if kind in _RICH and self.random.random() < 0.7:
            return _RICH[kind]
        given: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            if field.type is str:
                given[field.name] = self.random.choice(["p1", "ag1", "x", "a" * 60])
            elif field.type is int:
                given[field.name] = self.random.choice([0, 1, 7, -1, 2**31 - 1])
            elif field.type is float:
                given[field.name] = self.random.choice([0.0, 0.01, 1.0])
            elif field.type is bool:
                given[field.name] = self.random.random() < 0.5
            elif field.required:
                given[field.name] = _SPEC if field.type is PartitionSpec else _SPEC.devices
        return kind(**given)

    def json(self, kind: type[Value]) -> bytes:
        """A body for a method that wants this kind."""
        good = msgspec.json.encode(self.value(kind))
        choice = self.random.randrange(6)
        if choice == 0:
            return good
        if choice == 1:
            return self.mutated(good)
        if choice == 2:
            depth = self.random.choice([10, 1000, 20_000])
            return b'{"spec":' * depth + b"1" + b"}" * depth
        if choice == 3:
            return self.garbage()
        tree = msgspec.json.decode(good)
        for _ in range(self.random.randrange(1, 4)):
            self._twist(tree)
        return msgspec.json.encode(tree)

    def _twist(self, tree: Any) -> None:
        while isinstance(tree, dict) and tree:
            key = self.random.choice(list(tree))
            if isinstance(tree[key], dict) and self.random.random() < 0.6:
                tree = tree[key]
                continue
            tree[key] = deepcopy(self.random.choice([*_TEXTS, *_NUMBERS, *_ODD]))
            return

    # -- HTTP --------------------------------------------------------------------------------

    def post(self) -> bytes:
        """A request for the Unix socket."""
        name, method = self.random.choice(list(METHODS.items()))
        body = self.json(method.request)
        length = self.random.choice([len(body)] * 12 + [0, 10**9, -1, len(body) + 7, "x", ""])
        path = self.random.choice([name] * 12 + ["", "Nothing", "../x", "%00", "x" * 9000])
        verb = self.random.choice(["POST"] * 12 + ["GET", "PUT", "PO ST", "\x00", ""])
        head = f"{verb} /podwright.v1/{path} HTTP/1.1\r\nHost: x\r\n"
        if self.random.random() < 0.05:
            head += f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n"
            whole = head.encode() + body + self.random.choice([b"\r\n0\r\n\r\n", b"\r\nz\r\n", b""])
        else:
            whole = f"{head}Content-Length: {length}\r\n\r\n".encode() + body
        return self._spoiled(whole)

    def get(self) -> bytes:
        """A request for the port that is to be read only."""
        paths = ["/healthz", "/metrics", "/v1/partitions", "/v1/nothing", "/", "//", "/%2e%2e"]
        path = self.random.choice([*paths, "/v1/" + "x" * self.random.randrange(20_000)])
        host = self.random.choice(["localhost"] * 4 + ["evil.example.org", "[::1]", "", "\x00"])
        verb = self.random.choice(["GET", "HEAD", "POST", "DELETE", "\xff"])
        return self._spoiled(f"{verb} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))

    def _spoiled(self, whole: bytes) -> bytes:
        if self.random.random() < 0.3:
            return self.mutated(whole)
        if self.random.random() < 0.03:
            return whole.replace(b"Host: x", b"X: " + b"y" * 20_000)
        return whole

    # -- gRPC --------------------------------------------------------------------------------

    def grpc(self) -> tuple[str, bytes]:
        """A method's path, and bytes for it."""
        if self.random.random() < 0.2:
            vendor = self.random.choice(list(virm.VIRM_METHODS.values()))
            return vendor.path, self._bytes(lambda: self.garbage(60))
        name, method = self.random.choice(list(METHODS.items()))
        return messages.method_path(name), self._bytes(
            lambda: messages.encode(self.value(method.request))
        )

    def agent(self) -> tuple[str, bytes]:
        """The same for an agent."""
        name, method = self.random.choice(list(AGENT_METHODS.items()))
        return f"/{AGENT_SERVICE}/{name}", self._bytes(
            lambda: messages.encode(self.value(method.request))
        )

    def _bytes(self, good: Callable[[], bytes]) -> bytes:
        choice = self.random.randrange(4)
        if choice == 0:
            return self.garbage()
        if choice == 1:
            return self.garbage(100_000) if self.random.random() < 0.02 else self.garbage(2000)
        return self.mutated(good()) if choice == 2 else good()

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Who somebody claims to be."""
        word = "".join(chr(self.random.randrange(33, 127)) for _ in range(40))
        shown = self.random.choice(
            [
                f"Bearer {word}",
                f"MUNGE MUNGE:{word}:",
                word,
                "",
                "Bearer",
                "Basic Og==",
                *[None] * 9,
            ]
        )
        return () if shown is None else (("authorization", shown), ("podwright-user-id", word))

    def frames(self) -> Iterator[bytes]:
        """HTTP/2 after its preface: frames of every kind, well made and not."""
        for _ in range(self.random.randrange(1, 12)):
            body = self.garbage(self.random.choice([0, 9, 40, 400]))
            length = self.random.choice([len(body)] * 8 + [0, 5, 2**24 - 1])
            kind = self.random.choice([*range(10), self.random.randrange(256)])
            stream = self.random.choice([0, 1, 2, 3, 5, 2**31 - 1, self.random.randrange(2**31)])
            flags = self.random.randrange(256)
            yield (
                struct.pack("!I", length)[1:]
                + bytes([kind, flags])
                + struct.pack("!I", stream)
                + body
            )

    def records(self) -> list[bytes]:
        """TLS: a handshake's first bytes, and then anything."""
        kind = self.random.choice([0x14, 0x15, 0x16, 0x17, 0x80])
        body = self.random.choice([self.garbage(600), b"\x01" + self.garbage(200)])
        length = self.random.choice([len(body)] * 4 + [0, 2**14, 2**16 - 1])
        head = bytes([kind, 3, self.random.randrange(5)]) + struct.pack("!H", length)
        return [head + body, self.garbage(100)]
