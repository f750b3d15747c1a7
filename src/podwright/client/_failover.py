"""Several addresses of servers that share a store: one is active, the others stand by.

A call that reaches no server, or the one that stands by, goes on to the next address until an
active one answers. A call whose answer was lost is made again. That is safe: reading twice does no
harm, and a call that changes something carries an id (`request_id`) under which a server carries it
out once. The vendor's protocol has no such id: there, a call that may have been carried out is not
made again, and the refusal says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import msgspec

from podwright.client._named_server import NamedServer, unreachable_error
from podwright.client._transport import Transport
from podwright.errors import Fenced, PodwrightError, TimedOut, Unavailable
from podwright.wire import Empty, Method, ServerInfo, Value, WaitRequest

#: Seconds for which a call looks for an active server. A takeover takes up to five.
PATIENCE = 10.0
_RETRY_PAUSE_S = 0.1
#: Seconds to connect to one of several servers. One that is switched off must not use up PATIENCE.
_CONNECT_TIMEOUT_S = 1.5

#: Connects to one server within the given seconds. Raises Unavailable or TimedOut.
Opener = Callable[[float], Transport]


class FailoverTransport:
    """A transport that calls the active one of several servers.

    openers: each connects to one server; they are tried in this order. server: the servers and the
    caller.
    """

    def __init__(
        self,
        openers: Sequence[Opener],
        addresses: str,
        *,
        server: NamedServer | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._openers = openers
        self._all = addresses
        self.server = server or NamedServer(addresses)
        self._clock, self._sleep = clock, sleep
        self._at = 0
        self._current: Transport | None = None
        self._served = False

    @property
    def where(self) -> str:
        """The address of the server that answers, or the addresses of all."""
        return self._current.where if self._current is not None else self._all

    @property
    def current(self) -> Transport | None:
        """The connection to the server that answered last, or None if it is closed."""
        return self._current

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        """Make one call, which the active server carries out once.

        Look for it for `PATIENCE` seconds.

        Raises Unavailable where no server becomes active, and TimedOut.
        """
        deadline = self._clock() + timeout
        request = _with_request_id(request)
        failures: list[PodwrightError] = []
        give_up_at = 0.0
        repeated = False
        while True:
            request_sent = False
            try:
                transport = self._connected(deadline)
                request_sent = True
                reply = transport.call(method, request, max(deadline - self._clock(), 0.001))
                if isinstance(reply, ServerInfo) and reply.standby:
                    raise _standby_error(transport.where, reply.active)
                self._served = True
                return reply
            except Unavailable as error:
                failures.append(error)
                reply_lost = request_sent and "standby" not in error.data
            except TimedOut as error:
                if request_sent:
                    self._next()  # it hangs: the next call goes to another server
                    raise
                failures.append(error)
                reply_lost = False
            except Fenced:
                if repeated and method.name == "Release":
                    return Empty()  # the first attempt was carried out, and its answer was lost
                raise
            if reply_lost and not _is_repeatable(method, request, transport):
                self._next()
                raise failures[-1]
            repeated = repeated or reply_lost
            self._next()
            now = self._clock()
            if not give_up_at:
                give_up_at = min(deadline, now + PATIENCE)
            if len(failures) % len(self._openers) == 0:
                if now >= give_up_at or not self._worth_waiting(failures):
                    raise self._nobody_active_error(failures)
                self._sleep(_RETRY_PAUSE_S)

    def another(self) -> FailoverTransport:
        """Return a transport to the same servers, with connections of its own."""
        return FailoverTransport(
            self._openers, self._all, server=self.server, clock=self._clock, sleep=self._sleep
        )

    def close(self) -> None:
        """Close the connection. A later call opens a new one."""
        if self._current is not None:
            self._current.close()
            self._current = None

    def _connected(self, deadline: float) -> Transport:
        if self._current is None:
            remaining = max(deadline - self._clock(), 0.001)
            self._current = self._openers[self._at](min(remaining, _CONNECT_TIMEOUT_S))
        return self._current

    def _next(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._openers)

    def _worth_waiting(self, failures: Sequence[PodwrightError]) -> bool:
        """Return whether an active server may appear.

        That is so if one was active before, if one stands by and may take over, or if one did not
        answer in time. Otherwise there is no server at all.
        """
        return self._served or any(
            isinstance(error, TimedOut) or "standby" in error.data for error in failures
        )

    def _nobody_active_error(self, failures: Sequence[PodwrightError]) -> Unavailable:
        problems = dict.fromkeys(error.problem for error in failures[-len(self._openers) :])
        reasons = "; ".join(str(error) for error in problems)
        return unreachable_error(
            self._all, f"none of them answers as the active server ({reasons})"
        )


def _is_repeatable(method: Method, request: Value, transport: Transport) -> bool:
    """Return whether a call may be made again although it may have been carried out."""
    if not method.changes:
        return True
    return getattr(transport, "remembers", True) and method.repeatable(request)


def _with_request_id(request: Value) -> Value:
    """Return the request with an id of its own, if it can carry one."""
    if isinstance(request, WaitRequest) and request.id:
        return request  # it asks about the waiter of that id
    if getattr(request, "request_id", None) == "":
        return msgspec.structs.replace(request, request_id=os.urandom(16).hex())
    return request


def _standby_error(server_address: str, active_address: str) -> Unavailable:
    return Unavailable(
        f"the server at {server_address} stands by for {active_address or 'another one'}",
        standby=True,
    )
