"""The queue of connections that wait for a place at the gate.

A connection without a place waits as an open socket from which nothing is read. It has no
connection to gRPC, and uses one descriptor. gRPC's clients take that for a slow server, and keep
their calls. The callers that wait are served in turn. When the queue is full, the newest connection
of the caller with the most waiting connections makes room for a caller with fewer.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

#: Seconds for which a connection waits for a place, before its calls are refused as busy.
PATIENCE_S = 10.0
#: Seconds after which a refused client may try again: with an empty queue, and with a full one.
RETRY_AFTER_EMPTY_S, RETRY_AFTER_FULL_S = 1.0, 10.0
#: The number of connections whose calls are refused as busy at once, and the seconds that a client
#: has to read the refusal.
MOST_BUSY, BUSY_REPLY_TIMEOUT_S = 64, 0.2


class Arrival(NamedTuple):
    """A connection that was accepted.

    caller: the caller whose limits count. since: when the connection arrived, in seconds.
    """

    connection: socket.socket
    address: str
    caller: str
    since: float


class DoorQueue:
    """The connections that wait. arrival_limit: their limit; 0: none may wait."""

    def __init__(self, arrival_limit: int) -> None:
        self.most = arrival_limit
        self._lines: dict[str, deque[Arrival]] = {}  # in the order in which callers are served
        self._arrivals: dict[int, Arrival] = {}  # by descriptor, oldest first
        self._hang_ups = select.epoll()

    def __len__(self) -> int:
        return len(self._arrivals)

    def __contains__(self, caller: str) -> bool:
        return caller in self._lines

    def fileno(self) -> int:
        """Return a descriptor that is readable when a client closed a waiting connection."""
        return self._hang_ups.fileno()

    def add(self, arrival: Arrival) -> Arrival | None:
        """Let a connection wait. Returns the connection that has no room now: another, this one, or
        none.

        In a full queue, the caller with the most waiting connections gives up its newest one. It
        must have at least two more than this caller has. With a smaller difference the exchange
        would only swap the two callers' numbers, and two callers could displace each other's
        connections without end.
        """
        displaced = None
        if len(self) >= self.most:
            longest_caller = max(
                self._lines, key=lambda caller: len(self._lines[caller]), default=""
            )
            caller_arrivals = self._lines.get(arrival.caller, ())
            if len(self._lines.get(longest_caller, ())) <= len(caller_arrivals) + 1:
                return arrival
            displaced = self._lines[longest_caller][-1]
            self.remove(displaced)
        self._lines.setdefault(arrival.caller, deque()).append(arrival)
        self._arrivals[arrival.connection.fileno()] = arrival
        self._hang_ups.register(arrival.connection, select.EPOLLRDHUP)
        return displaced

    def remove(self, arrival: Arrival) -> None:
        """Take a connection out of the queue."""
        descriptor = arrival.connection.fileno()
        del self._arrivals[descriptor]
        self._hang_ups.unregister(descriptor)
        caller_arrivals = self._lines.pop(arrival.caller)
        caller_arrivals.remove(arrival)
        if caller_arrivals:  # the caller goes behind all others
            self._lines[arrival.caller] = caller_arrivals

    def heads(self) -> Iterator[Arrival]:
        """Yield the oldest connection of each caller, in the order in which the callers are
        served.
        """
        for arrivals in list(self._lines.values()):
            yield arrivals[0]

    def late(self, now: float) -> Iterator[Arrival]:
        """Yield the connections that have waited for longer than PATIENCE_S. now: seconds."""
        for arrival in list(self._arrivals.values()):
            if arrival.since + PATIENCE_S > now:
                return
            yield arrival

    def drop_closed(self) -> int:
        """Remove the connections that their clients closed. Returns their number."""
        closed_arrivals = [self._arrivals[descriptor] for descriptor, _ in self._hang_ups.poll(0)]
        for arrival in closed_arrivals:
            self.remove(arrival)
            arrival.connection.close()
        return len(closed_arrivals)

    def retry_after_s(self) -> int:
        """Return the seconds after which a client that is refused now should try again."""
        ratio = len(self) / self.most if self.most else 1.0
        return math.ceil(RETRY_AFTER_EMPTY_S + (RETRY_AFTER_FULL_S - RETRY_AFTER_EMPTY_S) * ratio)

    def close(self) -> None:
        """Close all waiting connections."""
        for arrival in list(self._arrivals.values()):
            self.remove(arrival)
            with contextlib.suppress(OSError):
                arrival.connection.close()

    def release(self) -> None:
        """Close all waiting connections, and the queue's own descriptor."""
        self.close()
        self._hang_ups.close()
