"""A request that is interrupted at any of its calls leaves no partition and no waiter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

import pytest

from podwright.client import (
    POLL_SECONDS,
    RECOVERY_SECONDS,
    Client,
    FoundServer,
    UnixTransport,
    acquire_in_line,
    acquire_now,
    wait_in_line,
)
from podwright.launcher import make_plan, parse
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.plan._plan import Plan
from podwright.launcher.run._launch_partition import LaunchPartition
from podwright.timeline import OFF
from podwright.wire import (
    AcquireRequest,
    CreateRequest,
    Method,
    PartitionSpec,
    Value,
    WaitRequest,
)
from tests.whole.conftest import Pod as Server

#: The number of the interrupted call, and whether the server had carried it out.
INTERRUPTIONS = [(number, sent) for number in (1, 2) for sent in (False, True)]


class InterruptedTransport(UnixTransport):
    """Raises KeyboardInterrupt at one of the calls that change something.

    sent: after the server has carried it out, so that only the answer is lost.
    """

    def __init__(self, path: str, number: int, *, sent: bool) -> None:
        super().__init__(path)
        self._number, self._sent, self._calls = number, sent, 0
        #: Seconds that the calls after the interruption may take.
        self.timeouts: list[float] = []

    def call(self, method: Method, request: Value, timeout: float) -> Value:
        self._calls += method.changes or method.name == "Wait"
        if self._calls != self._number:
            if self._calls > self._number:
                self.timeouts.append(timeout)
            return super().call(method, request, timeout)
        self._calls += 1
        if self._sent:
            super().call(method, request, timeout)
        raise KeyboardInterrupt


def _nothing_is_left(server: Server) -> None:
    with Client(UnixTransport(str(server.socket))) as client:
        assert (client.list_partitions(), client.list_leases()) == ([], [])
        assert client.list_waiters() == []


@pytest.mark.parametrize(("number", "sent"), INTERRUPTIONS)
def test_an_interrupted_wait_for_a_lease_leaves_no_lease(
    server: Server, number: int, sent: bool
) -> None:
    transport = InterruptedTransport(str(server.socket), number, sent=sent)
    request = AcquireRequest(spec=PartitionSpec(name="", size=4), create=True)
    with Client(transport) as client, pytest.raises(KeyboardInterrupt):
        acquire_in_line(client, request, print)
    _nothing_is_left(server)
    assert max(transport.timeouts) <= RECOVERY_SECONDS + POLL_SECONDS, (
        "a server that hangs holds it up"
    )


@pytest.mark.parametrize("sent", [False, True])
def test_an_interrupted_wait_for_a_partition_leaves_no_partition(
    server: Server, sent: bool
) -> None:
    transport = InterruptedTransport(str(server.socket), 1, sent=sent)
    request = WaitRequest(create=CreateRequest(spec=PartitionSpec(name="p", size=4)))
    with Client(transport) as client, pytest.raises(KeyboardInterrupt):
        wait_in_line(client, request, print)
    _nothing_is_left(server)


@pytest.mark.parametrize("sent", [False, True])
def test_an_interrupted_request_for_a_lease_leaves_no_lease(server: Server, sent: bool) -> None:
    transport = InterruptedTransport(str(server.socket), 1, sent=sent)
    request = AcquireRequest(spec=PartitionSpec(name="", size=4), create=True)
    with Client(transport) as client, pytest.raises(KeyboardInterrupt):
        acquire_now(client, request)
    _nothing_is_left(server)
    assert max(transport.timeouts) <= RECOVERY_SECONDS


@pytest.mark.parametrize("waits", [False, True])
def test_a_request_that_never_arrived_replaces_no_partition(server: Server, waits: bool) -> None:
    transport = InterruptedTransport(str(server.socket), 1, sent=False)
    with Client(UnixTransport(str(server.socket))) as owner:
        partition = owner.create_partition(PartitionSpec(name="p", size=4))
        request = AcquireRequest(spec=PartitionSpec(name="p", size=8), update=True, reset=True)
        acquire = partial(acquire_in_line, report_line=print) if waits else acquire_now
        with Client(transport) as client, pytest.raises(KeyboardInterrupt):
            acquire(client, request)
        (left,) = owner.list_partitions()
        assert (left.created_at, left.epoch, left.leases) == (
            partition.created_at,
            partition.epoch,
            [],
        )
        owner.remove_partition("p")
    _nothing_is_left(server)


@pytest.mark.parametrize(
    ("number", "sent", "wait"),
    [
        *((*interruption, "yes") for interruption in INTERRUPTIONS),
        (1, False, "no"),
        (1, True, "no"),
    ],
)
def test_an_interrupted_launch_leaves_no_lease(
    server: Server, number: int, sent: bool, wait: str
) -> None:
    transport = InterruptedTransport(str(server.socket), number, sent=sent)

    def find(plan: Plan, environ: Mapping[str, str]) -> FoundServer:
        client = Client(transport)
        return FoundServer(client, client.get_server_info(), "named")

    words = ["--num-replicas=2", "--launcher=local", f"--vipu-wait={wait}", "true"]
    plan = make_plan(parse(words), os.environ)
    partition = LaunchPartition(os.environ, Output(), find, OFF, None)
    with pytest.raises(KeyboardInterrupt):
        partition.hold(plan, "podwright-run-test")
    partition.give_back([], None)
    _nothing_is_left(server)
