"""Waiting in the server's queue, with a report of each change, even while the server restarts.

The call that joins the queue carries an id, so it can be repeated when its answer was lost without
taking a second place. The client acknowledges what the server gives by a call on it. The server
takes back what is not acknowledged in time, so a client that dies in between leaves nothing behind.

A client that is interrupted in the middle of a call does not know whether the server has carried it
out. It repeats the call under the same id, which tells, and gives back what it was given. The
repeated call neither creates nor replaces a partition, in case the first one never arrived. It is
short, because a server that hangs must not hold up a client that wants to end.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from podwright.client._client import Client
from podwright.errors import Fenced, NotFound, PodwrightError, Unavailable
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    OperationState,
    WaiterInfo,
    WaitReply,
    WaitRequest,
)

_T = TypeVar("_T")

#: Seconds for which one call waits for its answer. The server drops a waiter that is silent for 30.
QUESTION = 20.0
#: How many times, a second apart, the server may fail to answer before the client gives up.
_OUTAGE = 25
#: Seconds in which the server must answer a client that was interrupted.
RECOVERY = 5.0
#: The beginning of the line that reports the end of the waiting.
OUR_TURN = "it is our turn"


def _nothing() -> None:
    """Do nothing between two calls."""


def wait_in_line(
    client: Client,
    request: WaitRequest,
    report: Callable[[str], None],
    *,
    between: Callable[[], None] = _nothing,
    question: float = QUESTION,
) -> WaitReply:
    """Wait in the queue. Return what the server gives, once it is this request's turn.

    Whatever ends the wait, the request leaves the queue. report: called with a line for each
    change. between: called after each call to the server; it may raise. question: seconds that one
    call may take.
    """
    inner = request.acquire or request.create
    request_id = (inner.request_id if inner else "") or os.urandom(16).hex()
    request = replace(request, request_id=request_id, acknowledges=True)
    last_report = ""
    reply: WaitReply | None = None
    try:
        reply = _persisting(lambda: client.wait(request), between, report, first=True)
        waiter = reply.waiter.id
        while reply.partition is None or (request.acquire is not None and reply.lease is None):
            line = _standing(reply.waiter)
            if line != last_report:
                report(line)
                last_report = line
            between()
            query = WaitRequest(id=waiter, timeout=question)
            reply = _persisting(lambda: client.wait(query), between, report)  # noqa: B023
        given = reply
        _persisting(lambda: _acknowledge(client, given), between, report)
    except NotFound:
        raise  # the queue has dropped us
    except BaseException as error:
        refused = reply is None and isinstance(error, PodwrightError)
        if not refused:
            with contextlib.suppress(PodwrightError):
                report(f"{withdraw(client, request, reply)} has left the queue")
        raise
    return reply


def withdraw(client: Client, request: WaitRequest, reply: WaitReply | None = None) -> str:
    """Leave the queue, and give back what was given. Return the waiter's id.

    reply: the last answer. None: it is not known whether the server has the request, which then
    must have the id of the first call. Raises NotFound if the queue has dropped the waiter.
    """
    client = Client(client.transport, timeout=RECOVERY)
    if reply is None:
        if request.acquire is not None:
            request = replace(request, acquire=_unchanging(request.acquire))
        reply = client.wait(request)
    if reply.waiter.state == "STARTING":  # it is known soon what it is given
        reply = client.wait(WaitRequest(id=reply.waiter.id, timeout=QUESTION))
    client.leave(reply.waiter.id)  # gives back what was not acknowledged
    with contextlib.suppress(NotFound, Fenced):
        if reply.lease is not None:
            client.release(reply.lease.id, reply.lease.epoch)
        elif reply.partition is not None and reply.created:
            partition = client.get_partition(reply.partition.name)
            if partition.created_at == reply.partition.created_at:
                client.remove_partition(partition.name)
    return reply.waiter.id


def acquire_now(client: Client, request: AcquireRequest) -> AcquireReply:
    """Acquire without waiting in the queue. An interrupted call gives the lease back."""
    request = replace(request, request_id=request.request_id or os.urandom(16).hex())
    try:
        return client.acquire(request)
    except PodwrightError:
        raise
    except BaseException:
        with contextlib.suppress(PodwrightError):
            take_back(client, request)
        raise


def take_back(client: Client, request: AcquireRequest) -> None:
    """Release what an interrupted Acquire may have given. request: with the id of that call."""
    client = Client(client.transport, timeout=RECOVERY)
    reply = client.acquire(_unchanging(request))
    client.release(reply.lease.id, reply.lease.epoch)


def _unchanging(request: AcquireRequest) -> AcquireRequest:
    """Return a request that changes nothing where the server does not have it yet."""
    return replace(request, create=False, update=False, reset=False)


def acquire_in_line(
    client: Client,
    request: AcquireRequest,
    report: Callable[[str], None],
    *,
    between: Callable[[], None] = _nothing,
    question: float = QUESTION,
) -> AcquireReply:
    """Wait in the queue as `wait_in_line` does. Return the lease."""
    wanted = WaitRequest(acquire=request)
    reply = wait_in_line(client, wanted, report, between=between, question=question)
    assert reply.lease is not None
    assert reply.partition is not None
    return AcquireReply(lease=reply.lease, partition=reply.partition, created=reply.created)


def _persisting(
    call: Callable[[], _T],
    between: Callable[[], None],
    report: Callable[[str], None],
    *,
    first: bool = False,
) -> _T:
    """Return what a repeatable call answers.

    Repeat it while a server restarts or another takes over.

    first: no server was reached before, so a server that does not run is an error at once.
    """
    for attempt in range(_OUTAGE):
        try:
            return call()
        except Unavailable as error:
            if first and not attempt and error.data.get("errno"):
                raise
            if not attempt:
                report("the server does not answer; asking again under the same id")
            time.sleep(1.0)
            between()
    return call()


def _acknowledge(client: Client, given: WaitReply) -> None:
    """Tell the server that the client has received what it gave.

    Raises NotFound or Fenced where the server has taken it back.
    """
    if given.lease is not None:
        client.renew(given.lease.id, given.lease.epoch)
        return
    assert given.partition is not None
    made = client.get_partition(given.partition.name)
    if (
        made.created_at != given.partition.created_at
        or made.operation_state is OperationState.REMOVING
    ):
        raise NotFound(
            f"partition {made.name} was made, and was taken back, since nobody claimed it in time",
            operation=f"create partition {made.name}",
            would_work="ask anew",
        )


def _standing(info: WaiterInfo) -> str:
    if info.state != "WAITING":
        return f"{OUR_TURN} ({info.id}): the partition is being made"
    text = f"place {info.place} in the queue ({info.id}), for {info.needs}"
    return f"{text}; about {span(info.estimate)} more" if info.estimate else text


def span(seconds: float) -> str:
    """Return an estimated time in words: `90 s`, `10 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
