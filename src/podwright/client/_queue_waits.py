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
from podwright.ground.plural import span
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
POLL_SECONDS = 20.0
#: How many times, a second apart, the server may fail to answer before the client gives up.
_MAX_FAILED_ASKS = 25
#: Seconds in which the server must answer a client that was interrupted.
RECOVERY_SECONDS = 5.0
#: The beginning of the line that reports the end of the waiting.
OUR_TURN = "it is our turn"


def _do_nothing() -> None:
    """Do nothing between two calls."""


def wait_in_line(
    client: Client,
    request: WaitRequest,
    report_line: Callable[[str], None],
    *,
    after_call: Callable[[], None] = _do_nothing,
    poll_seconds: float = POLL_SECONDS,
) -> WaitReply:
    """Wait in the queue. Return what the server gives, once it is this request's turn.

    Whatever ends the wait, the request leaves the queue. report_line: called with a line for each
    change. after_call: called after each call to the server; it may raise. poll_seconds: seconds
    that one call may take.
    """
    inner_request = request.acquire or request.create
    request_id = (inner_request.request_id if inner_request else "") or os.urandom(16).hex()
    request = replace(request, request_id=request_id, acknowledges=True)
    last_report = ""
    reply: WaitReply | None = None
    try:
        reply = _retry_outage(
            lambda: client.wait(request), after_call, report_line, first_call=True
        )
        waiter_id = reply.waiter.id
        while reply.partition is None or (request.acquire is not None and reply.lease is None):
            status_line = _waiter_in_words(reply.waiter)
            if status_line != last_report:
                report_line(status_line)
                last_report = status_line
            after_call()
            status_request = WaitRequest(id=waiter_id, timeout=poll_seconds)
            reply = _retry_outage(lambda: client.wait(status_request), after_call, report_line)  # noqa: B023
        granted_reply = reply
        _retry_outage(lambda: _acknowledge(client, granted_reply), after_call, report_line)
    except NotFound:
        raise  # the queue has dropped us
    except BaseException as error:
        join_refused = reply is None and isinstance(error, PodwrightError)
        if not join_refused:
            with contextlib.suppress(PodwrightError):
                report_line(f"{withdraw(client, request, reply)} has left the queue")
        raise
    return reply


def withdraw(client: Client, request: WaitRequest, last_reply: WaitReply | None = None) -> str:
    """Leave the queue, and give back what was given. Return the waiter's id.

    last_reply: the last answer. None: it is not known whether the server has the request, which
    then must have the id of the first call. Raises NotFound if the queue has dropped the waiter.
    """
    client = Client(client.transport, timeout=RECOVERY_SECONDS)
    if last_reply is None:
        if request.acquire is not None:
            request = replace(request, acquire=_without_changes(request.acquire))
        last_reply = client.wait(request)
    if last_reply.waiter.state == "STARTING":  # it is known soon what it is given
        last_reply = client.wait(WaitRequest(id=last_reply.waiter.id, timeout=POLL_SECONDS))
    client.leave(last_reply.waiter.id)  # gives back what was not acknowledged
    with contextlib.suppress(NotFound, Fenced):
        if last_reply.lease is not None:
            client.release(last_reply.lease.id, last_reply.lease.epoch)
        elif last_reply.partition is not None and last_reply.created:
            partition = client.get_partition(last_reply.partition.name)
            if partition.created_at == last_reply.partition.created_at:
                client.remove_partition(partition.name)
    return last_reply.waiter.id


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
    client = Client(client.transport, timeout=RECOVERY_SECONDS)
    reply = client.acquire(_without_changes(request))
    client.release(reply.lease.id, reply.lease.epoch)


def _without_changes(request: AcquireRequest) -> AcquireRequest:
    """Return a request that changes nothing where the server does not have it yet."""
    return replace(request, create=False, update=False, reset=False)


def acquire_in_line(
    client: Client,
    request: AcquireRequest,
    report_line: Callable[[str], None],
    *,
    after_call: Callable[[], None] = _do_nothing,
    poll_seconds: float = POLL_SECONDS,
) -> AcquireReply:
    """Wait in the queue as `wait_in_line` does. Return the lease."""
    wait_request = WaitRequest(acquire=request)
    reply = wait_in_line(
        client, wait_request, report_line, after_call=after_call, poll_seconds=poll_seconds
    )
    assert reply.lease is not None
    assert reply.partition is not None
    return AcquireReply(lease=reply.lease, partition=reply.partition, created=reply.created)


def _retry_outage(
    call: Callable[[], _T],
    after_call: Callable[[], None],
    report_line: Callable[[str], None],
    *,
    first_call: bool = False,
) -> _T:
    """Return what a repeatable call answers.

    Repeat it while a server restarts or another takes over.

    first_call: no server was reached before, so a server that does not run is an error at once.
    """
    for attempt in range(_MAX_FAILED_ASKS):
        try:
            return call()
        except Unavailable as error:
            if first_call and not attempt and error.data.get("errno"):
                raise
            if not attempt:
                report_line("the server does not answer; asking again under the same id")
            time.sleep(1.0)
            after_call()
    return call()


def _acknowledge(client: Client, granted_reply: WaitReply) -> None:
    """Tell the server that the client has received what it gave.

    Raises NotFound or Fenced where the server has taken it back.
    """
    if granted_reply.lease is not None:
        client.renew(granted_reply.lease.id, granted_reply.lease.epoch)
        return
    assert granted_reply.partition is not None
    partition = client.get_partition(granted_reply.partition.name)
    if (
        partition.created_at != granted_reply.partition.created_at
        or partition.operation_state is OperationState.REMOVING
    ):
        raise NotFound(
            f"partition {partition.name} was made, and was taken back, since nobody claimed it in "
            "time",
            operation=f"create partition {partition.name}",
            would_work="ask anew",
        )


def _waiter_in_words(waiter: WaiterInfo) -> str:
    if waiter.state != "WAITING":
        return f"{OUR_TURN} ({waiter.id}): the partition is being made"
    status = f"place {waiter.place} in the queue ({waiter.id}), for {waiter.needs}"
    return f"{status}; about {span(waiter.estimate)} more" if waiter.estimate else status
