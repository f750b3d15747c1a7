"""The right to a partition for the time of a run: acquired, renewed in the background, released.

A server that is down for a while is no reason to stop a program: renewal goes on until somebody
who answers says that the lease is over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from podwright.client import Client, Found, ServerOptions, find_server
from podwright.launch._plan import LEASE_TTL, Plan
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    Fenced,
    Internal,
    NotFound,
    PartitionInfo,
    PodwrightError,
    TimedOut,
    WrongState,
    holder_words,
)

if TYPE_CHECKING:
    import threading

#: Seconds from one renewal to the next, and to the next try of one that failed.
RENEW_EVERY = LEASE_TTL / 3.3
RETRY_EVERY = 1.0
_CALL_TIMEOUT = 3.0
#: Programs that run others, which are what a person would call by name.
_INTERPRETERS = ("python", "sh", "bash", "perl", "env", "time", "numactl")
#: What a controller speaks that knows no leases.
VENDORS_ALONE = ["virmgrpc"]

Find = Callable[[Plan, Mapping[str, str]], Found]


def find(plan: Plan, environ: Mapping[str, str]) -> Found:
    """The server of a plan, in the design's order."""
    options = ServerOptions(host=plan.server_host, port=plan.server_port, certs=plan.server_certs)
    return find_server(options, environ, timeout=plan.server_timeout)


def in_name_of(request: AcquireRequest, program: Sequence[str]) -> AcquireRequest:
    """The request with words for others to read: which program, which process, on which host."""
    return msgspec.structs.replace(
        request, holder=holder_words(_called(program), os.getpid(), os.uname().nodename)
    )


def _called(program: Sequence[str]) -> str:
    """What a person would call a command line: `train.py` for `python3 -u train.py --fast`."""
    names = [os.path.basename(word) for word in program if word and not word.startswith("-")]
    first = names[0] if names else ""
    inline = any(word in ("-c", "-m") for word in program[1:3])
    if len(names) > 1 and not inline and first.rstrip("0123456789.") in _INTERPRETERS:
        return names[1]
    return first


def acquire(
    found: Found,
    plan: Plan,
    again: Callable[[PodwrightError], None],
    tell: Callable[[str], None],
    between: Callable[[], None],
) -> Lease | Borrowed:
    """The lease on a partition that is ACTIVE; what will not become so is tried again.

    tell, between: as `acquire_in_turn` has them, where the plan says to wait.
    """
    client, request, attempts = found.client, in_name_of(plan.request, plan.program), plan.attempts
    while True:
        attempts -= 1
        try:
            if found.info.apis == VENDORS_ALONE:
                from podwright.launch._borrow import borrow

                return Borrowed(client, *borrow(client, request), keep=request.keep)
            if plan.waits:
                from podwright.launch._waiting import acquire_in_turn

                return Lease(client, acquire_in_turn(client, request, tell, between))
            return Lease(client, client.acquire(request))
        except (WrongState, TimedOut, Internal) as error:
            if attempts <= 0:
                raise
            again(error)


class Borrowed:
    """A partition of a controller without leases, with what `Lease` has. lost: never readable."""

    #: What is so when it could not be given back.
    not_back = "the partition was not removed"

    def __init__(self, client: Client, partition: PartitionInfo, created: bool, keep: bool) -> None:
        self.partition, self.created = partition, created
        self.reason: PodwrightError | None = None
        self.lost, self._tell = os.pipe()
        self._client, self._remove = client, created and not keep

    def keep(self) -> None:
        """Nothing has to be renewed."""

    def rest(self) -> None:
        """Nothing is."""

    def release(self) -> PodwrightError | None:
        """Remove it, if it was made for this launch; what stood in the way, if anything."""
        try:
            if self._remove:
                self._client.remove_partition(self.partition.name)
        except PodwrightError as error:
            return error
        finally:
            self._client.close()
            os.close(self.lost)
            os.close(self._tell)
        return None


class Lease:
    """A lease that is held. lost: a descriptor that becomes readable when it is over."""

    #: What is so when it could not be given back.
    not_back = "the lease was not given back and ends by itself"

    def __init__(self, client: Client, reply: AcquireReply) -> None:
        self.partition = reply.partition
        self.created = reply.created
        self.reason: PodwrightError | None = None
        self.lost, self._tell = os.pipe()
        self._client = client
        self._lease = reply.lease
        self._thread: threading.Thread | None = None
        self._over: threading.Event | None = None

    def keep(self) -> None:
        """Renew it from now on, in a thread. The client is that thread's until `release`."""
        if self._thread:
            return
        import threading  # 7 ms, while the instances are starting anyway

        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def _renew(self) -> None:
        assert self._over
        pause = RENEW_EVERY
        while not self._over.wait(pause):
            pause = RENEW_EVERY
            try:
                self._client.renew(self._lease.id, self._lease.epoch, timeout=_CALL_TIMEOUT)
            except (Fenced, NotFound) as error:
                self.reason = error
                os.write(self._tell, b"!")
                return
            except PodwrightError:
                pause = RETRY_EVERY

    def rest(self) -> None:
        """Stop renewing for a moment, so that a process can be forked without a second thread."""
        if self._thread and self._over:
            self._over.set()
            self._thread.join()
            self._thread = None

    def release(self) -> PodwrightError | None:
        """Give it back; what stood in the way, if anything: it then ends by itself."""
        self.rest()
        try:
            if self.reason is None:
                self._client.release(self._lease.id, self._lease.epoch)
        except PodwrightError as error:
            return error
        finally:
            self._client.close()
            os.close(self.lost)
            os.close(self._tell)
        return None
