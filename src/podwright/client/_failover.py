"""Several addresses of one server: of two that share a store, one answers and one stands by.

A call that meets nobody, or the one that stands by, goes on to the next address until somebody
answers. One whose answer got lost is made again: reading twice does no harm, and what changes
something carries an id under which a server does it once (`request_id`). What can carry none and
may have been done is not asked again: the refusal says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import msgspec

from podwright.client._addresses import unreachable
from podwright.client._transport import Transport
from podwright.errors import Fenced, PodwrightError, TimedOut, Unavailable
from podwright.wire import Empty, Method, ServerInfo, Value

#: Seconds for which a call looks for a server that answers: a takeover takes up to five.
PATIENCE = 10.0
_PAUSE = 0.1
#: Seconds to connect to one of several: one that is switched off must not use up the patience.
_CONNECT = 1.5

#: Connects within the seconds given. Raises Unavailable or TimedOut.
Opener = Callable[[float], Transport]


class FailoverTransport:
    """Calls whichever of several servers is active.

    openers: connect to one each, in the order in which they are tried.
    """

    def __init__(
        self,
        openers: Sequence[Opener],
        where: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._openers = openers
        self._all = where
        self._clock, self._sleep = clock, sleep
        self._at = 0
        self._current: Transport | None = None
        self._served = False

    @property
    def where(self) -> str:
        """The server that answers, or all of them."""
        return self._current.where if self._current is not None else self._all

    @property
    def current(self) -> Transport | None:
        """The connection to the one that answered last, if it stands."""
        return self._current

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """One call, done once, by whoever is active within `PATIENCE` seconds."""
        deadline = self._clock() + timeout
        request = _with_id(request)
        failures: list[PodwrightError] = []
        until = 0.0
        repeated = False
        while True:
            sent = False
            try:
                transport = self._connected(deadline)
                sent = True
                reply = transport.call(method, request, max(deadline - self._clock(), 0.001))
                if isinstance(reply, ServerInfo) and reply.standby:
                    raise _stands_by(transport.where, reply.active)
                self._served = True
                return reply
            except Unavailable as error:
                failures.append(error)
                lost = sent and "standby" not in error.data
            except TimedOut as error:
                if sent:
                    self._next()  # it hangs: the next call asks another one
                    raise
                failures.append(error)
                lost = False
            except Fenced:
                if repeated and method.name == "Release":
                    return Empty()  # the first time it was done, and the answer lost
                raise
            if lost and not _repeatable(method, request, transport):
                self._next()
                raise failures[-1]
            repeated = repeated or lost
            self._next()
            now = self._clock()
            if not until:
                until = min(deadline, now + PATIENCE)
            if len(failures) % len(self._openers) == 0:
                if now >= until or not self._worth_waiting(failures):
                    raise self._nobody(failures)
                self._sleep(_PAUSE)

    def another(self) -> FailoverTransport:
        """To the same servers, over connections of its own."""
        return FailoverTransport(self._openers, self._all, clock=self._clock, sleep=self._sleep)

    def close(self) -> None:
        """Let go of the connection; a later call opens a new one."""
        if self._current is not None:
            self._current.close()
            self._current = None

    def _connected(self, deadline: float) -> Transport:
        if self._current is None:
            left = max(deadline - self._clock(), 0.001)
            self._current = self._openers[self._at](min(left, _CONNECT))
        return self._current

    def _next(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._openers)

    def _worth_waiting(self, failures: Sequence[PodwrightError]) -> bool:
        """Somebody was active, or stands by to become so, or has not come to answer yet; else
        nobody is there at all."""
        return self._served or any(
            isinstance(error, TimedOut) or "standby" in error.data for error in failures
        )

    def _nobody(self, failures: Sequence[PodwrightError]) -> Unavailable:
        last = dict.fromkeys(error.problem for error in failures[-len(self._openers) :])
        told = "; ".join(str(error) for error in last)
        return unreachable(self._all, f"none of them answers as the active server ({told})")


def _repeatable(method: Method, request: Value, transport: Transport) -> bool:
    """Whether a call does no harm when it is made again, although it may have been done."""
    if not method.changes:
        return True
    return getattr(transport, "remembers", True) and method.repeatable(request)


def _with_id(request: Value) -> Value:
    """The request with an id of its own, where it can carry one."""
    if getattr(request, "request_id", None) == "":
        return msgspec.structs.replace(request, request_id=os.urandom(16).hex())
    return request


def _stands_by(where: str, active: str) -> Unavailable:
    return Unavailable(
        f"the server at {where} stands by for {active or 'another one'}", standby=True
    )
