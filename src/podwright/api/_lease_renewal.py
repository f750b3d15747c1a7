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

from podwright.client import Client, NamedServer, reopen
from podwright.errors import Fenced, NotFound, PodwrightError, TimedOut, Unavailable

#: Seconds between two renewals, and the most that one renewal may take.
EVERY, CALL_TIMEOUT_S = 5.0, 5.0
#: Seconds for which the process tries to give the lease back to a server that is down. After that
#: time the lease ends by itself.
_RELEASE_OUTAGE_S = 60.0


def keep(
    client: Client,
    lease_id: str,
    epoch: int,
    partition_name: str,
    wait_for_release: Callable[[float], bool],
) -> None:
    """Renew a lease until it is no longer wanted, then give it back.

    wait_for_release: waits for at most so many seconds; returns whether the lease is no longer
    wanted. Raises what the server refuses: Fenced or NotFound once the lease is over.
    """
    unwanted = False
    while not unwanted:
        unwanted = wait_for_release(EVERY)
        _renew_once(client, lease_id, epoch)
    release_deadline = time.monotonic() + _RELEASE_OUTAGE_S
    while True:
        try:
            if not _has_children(client, partition_name, lease_id):
                client.release(lease_id, epoch)
                return
            _renew_once(client, lease_id, epoch)
        except (Unavailable, TimedOut):
            if time.monotonic() > release_deadline:
                raise
        time.sleep(0.1)


def _renew_once(client: Client, lease_id: str, epoch: int) -> None:
    """Renew the lease once. A server that is away for a while is asked again at the next turn."""
    try:
        client.renew(lease_id, epoch, timeout=CALL_TIMEOUT_S)
    except (Fenced, NotFound):
        raise
    except PodwrightError:
        return


def _has_children(client: Client, partition_name: str, lease_id: str) -> bool:
    """Return whether launches within the lease go on.

    They give back their own leases at their end.
    """
    try:
        info = client.get_partition(partition_name)
    except NotFound:
        return False
    return any(lease.parent == lease_id for lease in info.leases)


def main() -> int:
    """Read the lease from standard input, keep it, and report. Return the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    lease_fields = json.loads(sys.stdin.buffer.readline())
    stdin_poll = select.poll()
    stdin_poll.register(0, select.POLLIN)

    def left(seconds: float) -> bool:
        return bool(stdin_poll.poll(seconds * 1000)) and not os.read(0, 4096)

    refusal_fields: dict[str, object] = {}
    try:
        with reopen(NamedServer.of_plain(lease_fields["server"])) as client:
            keep(
                client,
                lease_fields["lease"],
                lease_fields["epoch"],
                lease_fields["partition"],
                left,
            )
    except PodwrightError as error:
        refusal_fields = error.to_json()
    with contextlib.suppress(BrokenPipeError):  # the program has gone, so nobody reads the report
        os.write(1, json.dumps(refusal_fields).encode() + b"\n")
    return 1 if refusal_fields else 0


if __name__ == "__main__":
    sys.exit(main())
