"""The waiting line, for whoever waits in it: told of each change, through a server's restart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from podwright.client._client import Client
from podwright.errors import NotFound, PodwrightError, Unavailable
from podwright.wire import AcquireReply, AcquireRequest, WaiterInfo, WaitReply, WaitRequest

#: Seconds that one question may wait for its answer. The server forgets who is silent for 30.
QUESTION = 20.0
#: Times that a server may fail to answer, a second apart, before we give up.
_OUTAGE = 25
#: How the line begins that tells the end of the waiting.
OUR_TURN = "it is our turn"


def _nothing() -> None:
    """Nothing is to be done between two questions."""


def wait_in_line(
    client: Client,
    request: WaitRequest,
    tell: Callable[[str], None],
    *,
    between: Callable[[], None] = _nothing,
    question: float = QUESTION,
) -> WaitReply:
    """What was asked for, once it is our turn. Whatever ends the waiting, the line is left.

    tell: hears of each change, a line. between: is called after each question, and may raise.
    question: seconds that one may take.
    """
    reply = client.wait(request)
    waiter = reply.waiter.id
    shown = ""
    try:
        while reply.partition is None or (request.acquire is not None and reply.lease is None):
            line = _standing(reply.waiter)
            if line != shown:
                tell(line)
                shown = line
            between()
            reply = _ask(client, WaitRequest(id=waiter, timeout=question), between)
    except NotFound:
        raise  # the line has left us
    except BaseException:
        with contextlib.suppress(PodwrightError):
            client.leave(waiter)
            tell(f"{waiter} has left the waiting line")
        raise
    return reply


def acquire_in_line(
    client: Client,
    request: AcquireRequest,
    tell: Callable[[str], None],
    *,
    between: Callable[[], None] = _nothing,
    question: float = QUESTION,
) -> AcquireReply:
    """The lease, once it is our turn; as `wait_in_line`."""
    wanted = WaitRequest(acquire=request)
    reply = wait_in_line(client, wanted, tell, between=between, question=question)
    assert reply.lease is not None
    assert reply.partition is not None
    return AcquireReply(lease=reply.lease, partition=reply.partition, created=reply.created)


def _ask(client: Client, request: WaitRequest, between: Callable[[], None]) -> WaitReply:
    for _ in range(_OUTAGE):
        try:
            return client.wait(request)
        except Unavailable:
            time.sleep(1.0)
            between()
    return client.wait(request)


def _standing(info: WaiterInfo) -> str:
    if info.state != "WAITING":
        return f"{OUR_TURN} ({info.id}): the partition is being made"
    text = f"place {info.place} in the waiting line ({info.id}), for {info.needs}"
    return f"{text}; about {span(info.estimate)} more" if info.estimate else text


def span(seconds: float) -> str:
    """A time that is estimated, in words: `90 s`, `10 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
