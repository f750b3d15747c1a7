"""One connection of a stranger to gRPC: its two ends, and the limits of what it may send."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from typing import Protocol, cast

from podwright.gate._connection_queue import Arrival
from podwright.http import Visitors

#: The bytes that a connection may send beside its calls: at first and at most, more with each call
#: whose message is complete, and more with each second. A client that sends more makes no calls.
MAX_CREDIT_BYTES, CREDIT_BYTES_PER_CALL, CREDIT_BYTES_PER_S = 2 << 20, 64 << 10, 4 << 10
#: The bytes beside its calls that a connection may owe, and the seconds for which it may owe more.
#: gRPC reads some floods so slowly that they would never use up their credit. No message takes so
#: long.
MAX_DEBT_BYTES, MAX_DEBT_DURATION_S = 64 << 10, 15.0
#: Seconds of silence for which a connection keeps its place while one of its calls is under way,
#: beyond the patience that every connection has.
ANSWERING_GRACE_S = 30.0


class _Forwarder(Protocol):
    """The part of the forwarder that a connection uses."""

    cut: Counter[str]
    busy: Visitors

    def over(self, visit: Visit) -> None:
        """Free the place of a connection that has ended."""


class Visit:
    """One connection, with its two ends.

    recent: the bytes that it sent, where older ones count less. visitors: the places among which it
    has one. calls: its calls that are under way. credit: the bytes that it may yet send beside its
    calls. debt: the bytes since its last call beyond those that every connection may send.
    debtor_since: when the debt became too large.
    """

    def __init__(self, arrival: Arrival, forwarder: _Forwarder, visitors: Visitors) -> None:
        self.connection = arrival.connection
        self.address, self.caller = arrival.address, arrival.caller
        self.places = visitors
        self.name = ""
        self.recent = 0
        self.credit = MAX_CREDIT_BYTES
        self.debt, self.debtor_since = 0, math.inf
        self.calls = 0
        self.last_byte = time.monotonic()
        self._forwarder = forwarder
        self.client_side, self.gate_side = (
            _ConnectionEnd(self, counts_bytes=True),
            _ConnectionEnd(self),
        )
        self.client_side.other, self.gate_side.other = self.gate_side, self.client_side

    @property
    def silent_since(self) -> float:
        """When it last sent or received a byte; later while a call is under way."""
        return self.last_byte + (ANSWERING_GRACE_S if self.calls else 0.0)

    @property
    def refused(self) -> bool:
        """Whether all its calls are refused as busy."""
        return self.places is self._forwarder.busy

    def leave(self) -> None:
        """Close both ends at once."""
        for connection_end in (self.client_side, self.gate_side):
            if connection_end.transport is not None:
                connection_end.transport.abort()
        self.over()

    def end_client_input(self) -> None:
        """End the client's half. gRPC then writes its last replies, and closes the connection."""
        self.client_side.deaf = True
        if (transport := self.gate_side.transport) is None:
            self.leave()
        elif not transport.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                transport.write_eof()

    def close_flooding(self) -> None:
        """Close the connection because it sent too much."""
        self._forwarder.cut["flood"] += 1
        self.leave()

    def over(self) -> None:
        """Tell the forwarder that one end has closed."""
        self._forwarder.over(self)


class _ConnectionEnd(asyncio.Protocol):
    """One end of a connection. It passes all that it receives to the other end."""

    other: _ConnectionEnd

    def __init__(self, visit: Visit, *, counts_bytes: bool = False) -> None:
        self._visit, self._counts = visit, counts_bytes
        self.transport: asyncio.Transport | None = None
        self.deaf = False
        self._early_bytes = b""  # bytes for this end that arrived before its transport
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.other._lost:  # the other end closed while this one opened
            self.transport.abort()
        elif self._early_bytes:
            self.transport.write(self._early_bytes)

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return None
        visit = self._visit
        visit.last_byte = time.monotonic()
        if self._counts:
            visit.recent += len(data)
            visit.credit -= len(data)
            visit.debt += len(data)
            if visit.credit < 0:
                return visit.close_flooding()
        if (transport := self.other.transport) is not None:
            transport.write(data)
        else:
            self.other._early_bytes += data
        return None

    def eof_received(self) -> bool:
        """Pass on the end of the stream.

        A client that has finished sending still gets its replies. gRPC closes both directions.
        """
        transport = self.other.transport
        if self._counts and transport is not None and not transport.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                transport.write_eof()
        return self._counts

    def pause_writing(self) -> None:
        if (transport := self.other.transport) is not None:
            transport.pause_reading()

    def resume_writing(self) -> None:
        transport = self.other.transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if self.other.transport is not None:
            self.other.transport.close()
        self._visit.over()
