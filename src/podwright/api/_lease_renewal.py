"""Keeps the lease that its standard input names: `python -m podwright.api._lease_renewal`.

The process renews the lease every few seconds. Its input closes when the program wants to end the
lease, and when the program dies. Then the process waits until no launch within the lease is left,
gives the lease back, and reports the outcome in one line: `{}`, or a refusal. If the lease ends
earlier, the process reports that at once.
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

#: Seconds between two renewals, and the most that one renewal may take.
EVERY, CALL = 5.0, 5.0
#: Seconds for which the process tries to give the lease back to a server that is down. After that
#: time the lease ends by itself.
_OUTAGE = 60.0


def keep(
    client: Client,
    lease: str,
    epoch: int,
    partition: str,
    left: Callable[[float], bool],
) -> None:
    """Renew a lease until it is no longer wanted, then give it back.

    left: waits for at most so many seconds; returns whether the lease is no longer wanted. Raises
    what the server refuses: Fenced or NotFound once the lease is over.
    """
    lost = False
    while not lost:
        lost = left(EVERY)
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
    """Renew the lease once. A server that is away for a while is asked again at the next turn."""
    try:
        client.renew(lease, epoch, timeout=CALL)
    except (Fenced, NotFound):
        raise
    except PodwrightError:
        return


def _has_children(client: Client, partition: str, lease: str) -> bool:
    """Return whether launches within the lease go on.

    They give back their own leases at their end.
    """
    try:
        partition_info = client.get_partition(partition)
    except NotFound:
        return False
    return any(other.parent == lease for other in partition_info.leases)


def main() -> int:
    """Read the lease from standard input, keep it, and report. Return the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    settings = json.loads(sys.stdin.buffer.readline())
    poll = select.poll()
    poll.register(0, select.POLLIN)

    def left(seconds: float) -> bool:
        return bool(poll.poll(seconds * 1000)) and not os.read(0, 4096)

    body: dict[str, object] = {}
    try:
        with open_client(os.environ) as client:
            keep(client, settings["lease"], settings["epoch"], settings["partition"], left)
    except PodwrightError as error:
        body = error.to_json()
    with contextlib.suppress(BrokenPipeError):  # the program has gone, so nobody reads the report
        os.write(1, json.dumps(body).encode() + b"\n")
    return 1 if body else 0


if __name__ == "__main__":
    sys.exit(main())
