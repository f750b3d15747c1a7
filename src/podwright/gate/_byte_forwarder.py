"""Passes bytes between TCP and gRPC. It counts them and never interprets them.

gRPC's library limits calls and messages. It does not limit the connections of one address, all of
their memory, or what a connection may send beside its calls: version 1.85 answers pings, settings
and headers without end. So gRPC listens on a socket that has no name in any folder, which only this
process reaches. Each connection to it has a name that the kernel chose, by which the peer of a call
is recognised.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

from podwright.gate._client_connection import (
    CREDIT_BYTES_PER_CALL,
    CREDIT_BYTES_PER_S,
    MAX_CREDIT_BYTES,
    MAX_DEBT_BYTES,
    MAX_DEBT_DURATION_S,
    Visit,
)
from podwright.gate._connection_queue import BUSY_REPLY_TIMEOUT_S, MOST_BUSY, Arrival, DoorQueue
from podwright.gate._gate_server_link import GateCounted
from podwright.hosts import caller_of
from podwright.http import Visitor, Visitors

_ACCEPTS_AT_ONCE = 16  #: connections accepted in one go, before others have their turn
_LOOK = 0.5  #: seconds between looks at our memory
_QUEUE_CHECK_PERIOD_S = 0.1  #: seconds after which those who wait for a place are looked at again
#: accept(2): no descriptor or no memory is left.
_NO_RESOURCES_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_HEAVY_TRAFFIC_BYTES = (
    128 << 10
)  #: bytes that a connection sent lately, below which it weighs nothing
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_memory_bytes() -> int:
    """Bytes of this process that lie in memory (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


class HiddenSocket:
    """A Unix socket for a library that needs a path. The path is removed once the library
    listens.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="podwright-gate-")
        self.path = os.path.join(self._folder, "s")
        self._handle = -1

    def hide(self) -> None:
        """Remove the path of the listening socket, so that only this process reaches it from now
        on.
        """
        with contextlib.suppress(FileNotFoundError):
            self._handle = os.open(self.path, os.O_PATH | os.O_CLOEXEC)
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)

    def connect(self) -> tuple[socket.socket, str]:
        """Return a connection to the socket, and the name that the socket knows it by. Raises
        OSError.
        """
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            connection.bind("")  # Linux chooses the name (unix(7), autobind)
            connection.connect(f"/proc/self/fd/{self._handle}")
        except BaseException:
            connection.close()
            raise
        return connection, connection.getsockname().lstrip(b"\0").decode("ascii")

    def close(self) -> None:
        """Make further connections impossible."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def unread(visitor: Visitor) -> bool:
    """Return whether a connection has sent bytes that this busy process has not read yet."""
    connection = cast("Visit", visitor).connection
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:  # nothing has arrived, or it has ended
        return False


class Forwarder:
    """Gives each connection a place, puts it into the queue, or has its calls refused as busy.

    listener: the socket that clients connect to. grpc_socket: the socket where gRPC listens.
    memory_limit: the limit in bytes (see Setup). waiting_limit: the number of connections that the
    queue may have.
    """

    def __init__(
        self,
        listener: socket.socket,
        grpc_socket: HiddenSocket,
        visitors: Visitors,
        memory_limit: int,
        read_memory_used: Callable[[], int] = resident_memory_bytes,
        clock: Callable[[], float] = time.monotonic,
        *,
        waiting_limit: int = 0,
        busy_limit: int = MOST_BUSY,
    ) -> None:
        self._listener, self._inner, self._clock = listener, grpc_socket, clock
        self._memory, self._used = memory_limit, read_memory_used
        self.visitors = visitors
        self.busy = Visitors(busy_limit, busy_limit, purpose="connections that are refused as busy")
        self._queue = DoorQueue(waiting_limit)
        self._turn: asyncio.TimerHandle | None = None
        self._visits: dict[str, Visit] = {}
        self.cut: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._check_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()

    def start(self) -> None:
        """Start accepting connections."""
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept_connections)
        self._loop.add_reader(self._queue, self._queue.drop_closed)
        self._check_timer = self._loop.call_later(_LOOK, self._check_traffic)

    def refuse(self) -> None:
        """Accept no more connections. Those that have a place keep it."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._loop.remove_reader(self._queue)
            self._queue.release()

    async def hang_up(self, timeout_s: float) -> None:
        """Read no more from clients, and deliver what gRPC has written. timeout_s: seconds for
        that.
        """
        for visit in self._all_visits():
            visit.end_client_input()
        self._empty = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s if self._all_visits() else 0):
                await self._empty.wait()

    def _resume_accepting(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept_connections)

    def stop(self) -> None:
        """Close all connections."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._turn is not None:
            self._turn.cancel()
        self.refuse()
        for visit in self._all_visits():
            visit.leave()
        self._inner.close()

    def _all_visits(self) -> list[Visit]:
        return [cast("Visit", visitor) for visitor in (*self.visitors, *self.busy)]

    def peer(self, connection_name: str) -> tuple[str, str]:
        """Return the address behind the name of a connection to gRPC, and the caller whose limits
        count.
        """
        visit = self._visits.get(connection_name)
        return ("", "") if visit is None else (visit.address, visit.caller)

    def counted(self) -> GateCounted:
        """Return the numbers of connections, now and since the start."""
        return GateCounted(
            open=len(self.visitors),
            waiting=0 if self._closed else len(self._queue),
            refused=self.visitors.refused,
            evicted=self.visitors.evicted,
            **self.cut,
        )

    def busy_retry_after_s(self, connection_name: str) -> int:
        """Return the seconds after which the caller of this connection should try again.

        0: the connection has a place, and its calls are answered.
        """
        visit = self._visits.get(connection_name)
        if visit is None or not visit.refused:
            return 0
        # After the client has read the refusal.
        self._loop.call_later(BUSY_REPLY_TIMEOUT_S, visit.end_client_input)
        return 1 if self._closed else self._queue.retry_after_s()

    def note_call_start(self, connection_name: str, message_size: int) -> None:
        """Note that a connection has sent a whole message of this size. Its call is under way from
        now on.
        """
        if (visit := self._visits.get(connection_name)) is not None:
            visit.calls += 1
            visit.credit = min(
                MAX_CREDIT_BYTES, visit.credit + CREDIT_BYTES_PER_CALL + message_size
            )
            visit.debt, visit.debtor_since = 0, math.inf

    def note_call_end(self, connection_name: str) -> None:
        """Note that a call of a connection was answered, or given up."""
        if (visit := self._visits.get(connection_name)) is not None:
            visit.calls -= 1
            visit.last_byte = time.monotonic()

    def _accept_connections(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                connection, peer_address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_RESOURCES_ERRNOS:  # accepting again at once would not help
                    self.cut["descriptors"] += 1
                    self._loop.remove_reader(self._listener)
                    self._loop.call_later(_LOOK, self._resume_accepting)
                return
            try:
                caller = caller_of(connection)
            except OSError:  # the client has gone
                connection.close()
                continue
            self._admit_or_queue(Arrival(connection, str(peer_address[0]), caller, self._clock()))

    def _admit_or_queue(self, arrival: Arrival) -> None:
        """Give a new connection a place. Nobody overtakes another connection of the same caller."""
        if arrival.caller not in self._queue and self._admit_connection(arrival, self.visitors):
            return
        if (displaced := self._queue.add(arrival)) is not None and not self._refuse_as_busy(
            displaced
        ):
            self.visitors.refused += 1
            displaced.connection.close()
        if self._turn is None and len(self._queue):
            self._turn = self._loop.call_later(_QUEUE_CHECK_PERIOD_S, self._admit_waiting)

    def _admit_waiting(self) -> None:
        """Give free places to the queue, and refuse the connections that waited too long."""
        self._turn = None
        if self._closed:
            return
        while self._fill_places():
            pass
        for arrival in self._queue.late(self._clock()):
            if not self._refuse_as_busy(arrival):
                break
            self._queue.remove(arrival)
        if len(self._queue):
            self._turn = self._loop.call_later(_QUEUE_CHECK_PERIOD_S, self._admit_waiting)

    def _fill_places(self) -> bool:
        """Give each caller that waits a place for one connection. Returns whether any got one."""
        admitted = False
        for arrival in self._queue.heads():
            if self._admit_connection(arrival, self.visitors):
                self._queue.remove(arrival)
                admitted = True
            elif self.visitors.full:  # the others would find no place either
                return False
        return admitted

    def _refuse_as_busy(self, arrival: Arrival) -> bool:
        """Let gRPC refuse the connection's calls. Returns whether there was a place for that."""
        admitted = self._admit_connection(arrival, self.busy)
        self.cut["busy"] += admitted
        return admitted

    def _admit_connection(self, arrival: Arrival, visitors: Visitors) -> bool:
        visit = Visit(arrival, self, visitors)
        admitted = visitors.admits(visit, arrival.caller)
        if admitted:
            task = self._loop.create_task(self._connect_visit(visit, arrival.connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return admitted

    async def _connect_visit(self, visit: Visit, client_socket: socket.socket) -> None:
        try:
            client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            grpc_socket, visit.name = self._inner.connect()
        except OSError:
            client_socket.close()
            self.over(visit)
            return
        self._visits[visit.name] = visit
        await self._loop.connect_accepted_socket(lambda: visit.gate_side, grpc_socket)
        await self._loop.connect_accepted_socket(lambda: visit.client_side, client_socket)

    def over(self, visit: Visit) -> None:
        """Free the place of a connection that has ended."""
        visit.places.gone(visit)
        if not self._all_visits():
            self._empty.set()
        if self._visits.get(visit.name) is visit:  # the kernel may have given the name to another
            del self._visits[visit.name]
        if self._turn is not None and not self._closed:  # a connection waits for this place
            self._turn.cancel()
            self._turn = self._loop.call_later(0, self._admit_waiting)

    def _check_traffic(self) -> None:
        """Above the memory limit, close the quarter of the connections that sent the most bytes."""
        self._check_timer = self._loop.call_later(_LOOK, self._check_traffic)
        if self._used() > self._memory:
            visits = sorted(self._all_visits(), key=lambda visit: -visit.recent)
            for visit in visits[: max(1, len(visits) // 4)]:
                if visit.recent > _HEAVY_TRAFFIC_BYTES:  # freed memory may still count
                    self.cut["memory"] += 1
                    visit.leave()
        for visit in self._all_visits():
            visit.recent //= 2
            visit.credit = min(MAX_CREDIT_BYTES, visit.credit + int(CREDIT_BYTES_PER_S * _LOOK))
            visit.debt = max(0, visit.debt - int(CREDIT_BYTES_PER_S * _LOOK))
            if visit.debt <= MAX_DEBT_BYTES:
                visit.debtor_since = math.inf
            elif (
                self._clock()
                > (debt_since := min(visit.debtor_since, self._clock())) + MAX_DEBT_DURATION_S
            ):
                self.cut["flood"] += 1
                visit.leave()
            else:
                visit.debtor_since = debt_since
