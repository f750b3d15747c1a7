"""The waiting line for a launch (`--vipu-wait`): its place is told; what waits is kept alive."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from podwright.client import Client
from podwright.errors import PodwrightError, Unavailable
from podwright.wire import AcquireReply, AcquireRequest, WaiterInfo, WaitReply, WaitRequest

#: Seconds that an answer may take. Hosts that were met hear from us in between.
QUESTION = 4.0
#: Times that a server may fail to answer, a second apart, before we give up.
_OUTAGE = 25


def acquire_in_turn(
    client: Client,
    request: AcquireRequest,
    tell: Callable[[str], None],
    between: Callable[[], None],
) -> AcquireReply:
    """The lease, once it is our turn. Whatever ends the waiting, the line is left.

    tell: hears of each change. between: is called every few seconds, and may raise.
    """
    reply = client.wait(WaitRequest(acquire=request))
    shown = ""
    try:
        while reply.lease is None or reply.partition is None:
            line = _standing(reply.waiter)
            if line != shown:
                tell(line)
                shown = line
            between()
            reply = _ask(client, WaitRequest(id=reply.waiter.id, timeout=QUESTION), between)
    except BaseException:
        with contextlib.suppress(PodwrightError):
            client.leave(reply.waiter.id)
        raise
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
        return "it is our turn: the partition is being made"
    text = f"place {info.place} in the waiting line ({info.id}), for {info.needs}"
    return f"{text}; about {info.estimate:.0f} s more" if info.estimate else text
