"""Bytes from TCP to gRPC and back: counted, never read.

gRPC's library limits calls and messages, but not how many connections an address has, nor all of
their memory, nor what one may send beside its calls: 1.85 answers pings, settings and heads
without end. It listens on a socket that has no name in any folder; only we reach it. Each
connection to it bears a name that the kernel chose, by which a call's peer is known again.
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

from podwright.gate._link import GateCounted
from podwright.hosts import caller_of
from podwright.http import Full, Visitors

_ACCEPTS = 16  #: connections accepted in one go, before others have their turn
_LOOK = 0.5  #: seconds between looks at our memory
#: Bytes that a connection may send beside its calls: at first and at most, with each call whose
#: message is whole, and with each second. Whoever sends more asks for nothing.
CREDIT, CREDIT_OF_CALL, CREDIT_OF_SECOND = 2 << 20, 64 << 10, 4 << 10
#: Bytes beside its calls that a connection may owe, and seconds for which it may owe more: gRPC
#: reads some floods so slowly that they would never use their credit up. No message takes so long.
DEBT, DEBT_S = 64 << 10, 15.0
#: accept(2): no descriptor or no memory is left.
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_HEAVY = 128 << 10  #: bytes that a connection sent lately, below which it weighs nothing
_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_used() -> int:
    """Bytes of this process that lie in memory (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


class Hidden:
    """A Unix socket of a library's that wants a path: the path is gone once it listens."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="podwright-gate-")
        self.path = os.path.join(self._folder, "s")
        self._handle = -1

    def hide(self) -> None:
        """It listens: nobody but us finds it from now on."""
        with contextlib.suppress(FileNotFoundError):
            self._handle = os.open(self.path, os.O_PATH | os.O_CLOEXEC)
            os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)

    def connect(self) -> tuple[socket.socket, str]:
        """A connection to it, and the name by which it knows the connection. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            connection.bind("")  # Linux: a name of its own choice (unix(7), autobind)
            connection.connect(f"/proc/self/fd/{self._handle}")
        except BaseException:
            connection.close()
            raise
        return connection, connection.getsockname().lstrip(b"\0").decode("ascii")

    def close(self) -> None:
        """Nobody connects any more."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Forwarder:
    """listener: of strangers. inner: where gRPC listens. memory: bytes, as Setup says."""

    def __init__(
        self,
        listener: socket.socket,
        inner: Hidden,
        visitors: Visitors,
        memory: int,
        used: Callable[[], int] = memory_used,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener, self._inner, self._clock = listener, inner, clock
        self._memory, self._used = memory, used
        self.visitors = visitors
        self._visits: dict[str, _Visit] = {}
        self.cut: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._look: asyncio.TimerHandle | None = None
        self._ended = False
        self._empty = asyncio.Event()

    def start(self) -> None:
        """Let them come."""
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept)
        self._look = self._loop.call_later(_LOOK, self._weigh)

    def refuse(self) -> None:
        """Nobody more; those who are here stay."""
        self._ended = True
        self._loop.remove_reader(self._listener)
        self._listener.close()

    async def hang_up(self, within: float) -> None:
        """Hear nobody any more. What gRPC has said still arrives, within so many seconds."""
        for visitor in self.visitors:
            cast("_Visit", visitor).hear_no_more()
        self._empty = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within if len(self.visitors) else 0):
                await self._empty.wait()

    def _resume(self) -> None:
        if not self._ended:
            self._loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """All go."""
        if self._look is not None:
            self._look.cancel()
        self._listener.close()
        for visitor in self.visitors:
            visitor.leave()
        self._inner.close()

    def peer(self, name: str) -> tuple[str, str]:
        """The address behind a name of a connection to gRPC; and whose limits count for it."""
        visit = self._visits.get(name)
        return ("", "") if visit is None else (visit.address, visit.caller)

    def counted(self) -> GateCounted:
        """The connections there are, and were."""
        visitors = self.visitors
        return GateCounted(len(visitors), visitors.refused, visitors.evicted, **self.cut)

    def earned(self, name: str, size: int) -> None:
        """A connection sent a message of this size, whole."""
        if (visit := self._visits.get(name)) is not None:
            visit.credit = min(CREDIT, visit.credit + CREDIT_OF_CALL + size)
            visit.debt, visit.debtor_since = 0, math.inf

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NOTHING_LEFT:  # then asking again at once would not help
                    self.cut["descriptors"] += 1
                    self._loop.remove_reader(self._listener)
                    self._loop.call_later(_LOOK, self._resume)
                return
            try:
                caller = caller_of(connection)
            except OSError:  # it has gone
                connection.close()
                continue
            task = self._loop.create_task(self._let_in(connection, str(address[0]), caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _let_in(self, outer: socket.socket, address: str, caller: str) -> None:
        visit = _Visit(address, caller, self)
        try:
            self.visitors.enter(visit, caller)
        except Full:
            outer.close()
            return
        try:
            outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            inner, visit.name = self._inner.connect()
        except OSError:
            outer.close()
            self.visitors.gone(visit)
            return
        self._visits[visit.name] = visit
        await self._loop.connect_accepted_socket(lambda: visit.inside, inner)
        await self._loop.connect_accepted_socket(lambda: visit.outside, outer)

    def over(self, visit: _Visit) -> None:
        """A connection has ended."""
        self.visitors.gone(visit)
        if not len(self.visitors):
            self._empty.set()
        if self._visits.get(visit.name) is visit:  # the kernel may have given its name away
            del self._visits[visit.name]

    def _weigh(self) -> None:
        """Above the memory that we may use, those who sent most go until a quarter has gone."""
        self._look = self._loop.call_later(_LOOK, self._weigh)
        if self._used() > self._memory:
            visits = sorted((cast("_Visit", v) for v in self.visitors), key=lambda v: -v.recent)
            for visit in visits[: max(1, len(visits) // 4)]:
                if visit.recent > _HEAVY:  # memory that was freed may still be ours
                    self.cut["memory"] += 1
                    visit.leave()
        for visitor in self.visitors:
            visit = cast("_Visit", visitor)
            visit.recent //= 2
            visit.credit = min(CREDIT, visit.credit + int(CREDIT_OF_SECOND * _LOOK))
            visit.debt = max(0, visit.debt - int(CREDIT_OF_SECOND * _LOOK))
            if visit.debt <= DEBT:
                visit.debtor_since = math.inf
            elif self._clock() > (since := min(visit.debtor_since, self._clock())) + DEBT_S:
                self.cut["flood"] += 1
                visit.leave()
            else:
                visit.debtor_since = since


class _Visit:
    """One connection: its two ends. recent: bytes that it sent, the older the less they count.

    credit: bytes that it may yet send beside its calls. debt: those that it sent since the last
    one, as far as they were more than everybody may send; debtor_since: when they became too many.
    """

    def __init__(self, address: str, caller: str, forwarder: Forwarder) -> None:
        self.address, self.caller = address, caller
        self.name = ""
        self.recent = 0
        self.credit = CREDIT
        self.debt, self.debtor_since = 0, math.inf
        self.silent_since = time.monotonic()
        self._forwarder = forwarder
        self.outside, self.inside = _Half(self, counts=True), _Half(self)
        self.outside.other, self.inside.other = self.inside, self.outside

    def leave(self) -> None:
        """Cut it off."""
        for half in (self.outside, self.inside):
            if half.transport is not None:
                half.transport.abort()
        self.over()

    def hear_no_more(self) -> None:
        """gRPC sees its end of the connection ended, says what it had to say, and closes it."""
        self.outside.deaf = True
        if (there := self.inside.transport) is None:
            self.leave()
        elif not there.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                there.write_eof()

    def flooded(self) -> None:
        """Cut it off: it sent too much."""
        self._forwarder.cut["flood"] += 1
        self.leave()

    def over(self) -> None:
        """It has ended at one end."""
        self._forwarder.over(self)


class _Half(asyncio.Protocol):
    """One end of a connection, which gives all that it hears to the other."""

    other: _Half

    def __init__(self, visit: _Visit, *, counts: bool = False) -> None:
        self._visit, self._counts = visit, counts
        self.transport: asyncio.Transport | None = None
        self.deaf = False
        self._early = b""  # for us, from the other end, before we were there
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if self.other._gone:  # it went while we came
            self.transport.abort()
        elif self._early:
            self.transport.write(self._early)

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            return None
        visit = self._visit
        visit.silent_since = time.monotonic()
        if self._counts:
            visit.recent += len(data)
            visit.credit -= len(data)
            visit.debt += len(data)
            if visit.credit < 0:
                return visit.flooded()
        if (there := self.other.transport) is not None:
            there.write(data)
        else:
            self.other._early += data
        return None

    def eof_received(self) -> bool:
        """No more from a stranger: what is on its way back still arrives. gRPC ends both ways."""
        there = self.other.transport
        if self._counts and there is not None and not there.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                there.write_eof()
        return self._counts

    def pause_writing(self) -> None:
        if (there := self.other.transport) is not None:
            there.pause_reading()

    def resume_writing(self) -> None:
        there = self.other.transport
        if there is not None and not there.is_closing():
            there.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        if self.other.transport is not None:
            self.other.transport.close()
        self._visit.over()
