"""Keeps a program's lease: `python -m podwright.api._lease_renewal`, told on its standard input.

It renews the lease every few seconds. When its input closes, since the program wants that or is no
more, it waits until no launch within the lease is left, gives the lease back, and says how that
went in a line: `{}`, or a refusal. Of a lease that is over before it says so at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable

from podwright.api._server_variables import open_client
from podwright.client import Client
from podwright.errors import Fenced, NotFound, PodwrightError, TimedOut, Unavailable

#: Seconds from one renewal to the next, and that one may take.
EVERY, CALL = 5.0, 5.0
#: Seconds for which a server that is down is asked to take a lease back; it ends by itself then.
_OUTAGE = 60.0


def keep(
    client: Client,
    lease: str,
    epoch: int,
    partition: str,
    left: Callable[[float], bool],
) -> None:
    """Renew a lease until `left` says, within so many seconds, that it is no longer wanted.

    Then give it back. Raises what the server refuses: Fenced or NotFound once it is over.
    """
    gone = False
    while not gone:
        gone = left(EVERY)
        _renew(client, lease, epoch)
    until = time.monotonic() + _OUTAGE
    while True:
        try:
            if not _has_children(client, partition, lease):
                client.release(lease, epoch)
                return
            _renew(client, lease, epoch)
        except (Unavailable, TimedOut):
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def _renew(client: Client, lease: str, epoch: int) -> None:
    """A server that is away for a while takes nothing from us: we ask again."""
    try:
        client.renew(lease, epoch, timeout=CALL)
    except (Fenced, NotFound):
        raise
    except PodwrightError:
        return


def _has_children(client: Client, partition: str, lease: str) -> bool:
    """Whether launches within the lease go on: they give back their own leases when they end."""
    try:
        found = client.get_partition(partition)
    except NotFound:
        return False
    return any(other.parent == lease for other in found.leases)


def main() -> int:
    """The whole of it."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    told = json.loads(sys.stdin.buffer.readline())
    poll = select.poll()
    poll.register(0, select.POLLIN)

    def left(seconds: float) -> bool:
        return bool(poll.poll(seconds * 1000)) and not os.read(0, 4096)

    body: dict[str, object] = {}
    try:
        with open_client(os.environ) as client:
            keep(client, told["lease"], told["epoch"], told["partition"], left)
    except PodwrightError as error:
        body = error.to_json()
    with contextlib.suppress(BrokenPipeError):  # nobody may be left who would want to know
        os.write(1, json.dumps(body).encode() + b"\n")
    return 1 if body else 0


if __name__ == "__main__":
    sys.exit(main())
