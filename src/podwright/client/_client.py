"""The typed client of podwright.v1, over any transport.

`Client.call` makes any call by its name, and `Client.ask` one whose reply is of a known type. Calls
that several rooms make also have a method.
"""

from __future__ import annotations

from _thread import allocate_lock  # importing threading would cost each command two milliseconds
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from podwright.client._named_server import NamedServer
from podwright.client._transport import Transport
from podwright.errors import InvalidRequest
from podwright.wire import (
    METHODS,
    AcquireReply,
    AcquireRequest,
    AllocationInfo,
    AllocationList,
    ClusterInfo,
    ClusterList,
    CreateRequest,
    DeviceInfo,
    DeviceList,
    Empty,
    ExplainRequest,
    Explanation,
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    ListRequest,
    MoveRequest,
    PartitionInfo,
    PartitionList,
    PartitionName,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
    ServerInfo,
    ServerInfoRequest,
    Token,
    TokenRequest,
    Value,
    WaiterInfo,
    WaiterList,
    WaiterName,
    WaitReply,
    WaitRequest,
    joined,
    next_page,
)

#: Seconds that a call may take. Resets of large partitions are slow: PopRun was seen to allow 120.
TIMEOUT = 120.0

_V = TypeVar("_V", bound=Value)


class Client:
    """A client of one server. It makes one call at a time: a second thread waits for the first, so
    one that must not wait needs a client of its own (`another`).

    timeout: seconds that a call may take, unless the call sets its own. Every method raises the
    errors of podwright.wire.
    """

    def __init__(self, transport: Transport, *, timeout: float = TIMEOUT) -> None:
        self.transport = transport
        self.timeout = timeout
        self.one_at_a_time = allocate_lock()

    @property
    def where(self) -> str:
        """The server's address, as messages name it."""
        return self.transport.where

    @property
    def server(self) -> NamedServer:
        """The server and the caller: what `reopen` needs in another process."""
        return self.transport.server

    def another(self) -> Client:
        """Return a client of the same server with its own connection, as for another thread."""
        return Client(self.transport.another(), timeout=self.timeout)

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, request: Value, *, timeout: float | None = None) -> Value:
        """Make the call of `wire.METHODS` with this name. Return its reply.

        A list is returned whole, however many pages it has, unless the request sets a page_size.
        """
        wire_method = METHODS.get(method)
        if wire_method is None:
            raise InvalidRequest(f"there is no call {method!r}")
        timeout_s = self.timeout if timeout is None else timeout
        replies: list[Value] = []
        page_request: Value | None = request
        while page_request is not None:
            with self.one_at_a_time:
                replies.append(self.transport.call(wire_method, page_request, timeout_s))
            page_request = next_page(page_request, replies[-1])
        return joined(replies)

    def ask(
        self, method_name: str, request: Value, reply_type: type[_V], timeout: float | None = None
    ) -> _V:
        """Make a call as `call` does. Return its reply, which is of this type."""
        answer = self.call(method_name, request, timeout=timeout)
        assert isinstance(answer, reply_type)
        return answer

    def get_server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Return who the server is, what it can do, and who the caller is to it."""
        return self.ask("GetServerInfo", ServerInfoRequest(), ServerInfo, timeout)

    def issue_token(self, audience: str = "") -> Token:
        """Return a token that is bound to the caller's uid.

        Only a server's Unix socket issues tokens.

        audience: empty for gRPC calls, `page` for one log-in on the page.
        """
        return self.ask("IssueToken", TokenRequest(audience=audience), Token)

    def list_clusters(self) -> list[ClusterInfo]:
        """Return all clusters."""
        return self.ask("ListClusters", ListRequest(), ClusterList).clusters

    def list_allocations(self, *, cluster: str = "") -> list[AllocationInfo]:
        """Return the allocations that the caller may see."""
        request = ListRequest(cluster=cluster)
        return self.ask("ListAllocations", request, AllocationList).allocations

    def list_devices(self, *, cluster: str = "", allocation: str = "") -> list[DeviceInfo]:
        """Return devices, in the order of cluster, link domain, offset."""
        request = ListRequest(cluster=cluster, allocation=allocation)
        return self.ask("ListDevices", request, DeviceList).devices

    def list_partitions(self, *, cluster: str = "", allocation: str = "") -> list[PartitionInfo]:
        """Return partitions, in the order of their names."""
        request = ListRequest(cluster=cluster, allocation=allocation)
        return self.ask("ListPartitions", request, PartitionList).partitions

    def list_leases(self) -> list[LeaseInfo]:
        """Return leases, in the order of their ids."""
        return self.ask("ListLeases", ListRequest(), LeaseList).leases

    def get_partition(self, name: str) -> PartitionInfo:
        """Return one partition as it stands now."""
        return self.ask("GetPartition", PartitionName(name=name), PartitionInfo)

    def create_partition(
        self, spec: PartitionSpec, *, wait: bool = True, duration: float = 0.0
    ) -> PartitionInfo:
        """Create a partition. With `wait`, return it once it is ACTIVE or in ERROR."""
        request = CreateRequest(spec=spec, wait=wait)
        if duration:
            request = msgspec.structs.replace(request, duration=duration)
        return self.ask("CreatePartition", request, PartitionInfo)

    def reset_partition(
        self, name: str, *, relocatable: bool = False, force: bool = False, wait: bool = True
    ) -> PartitionInfo:
        """Reset a partition's devices.

        force: reset them even while somebody holds a lease on it.
        """
        request = ResetRequest(name=name, relocatable=relocatable, force=force, wait=wait)
        return self.ask("ResetPartition", request, PartitionInfo)

    def remove_partition(self, name: str, *, force: bool = False, wait: bool = True) -> None:
        """Remove a partition. force: remove it despite errors and leases."""
        self.ask("RemovePartition", RemoveRequest(name=name, force=force, wait=wait), Empty)

    def acquire(self, request: AcquireRequest) -> AcquireReply:
        """Find or create a partition and take a lease on it, in one step."""
        return self.ask("Acquire", request, AcquireReply)

    def renew(
        self,
        lease: str,
        epoch: int,
        *,
        hosts: Sequence[str] = (),
        move_seconds: float = 0.0,
        timeout: float | None = None,
    ) -> LeaseInfo:
        """Extend a lease by another ttl.

        hosts: where its instances run, if that has changed. move_seconds: seconds that its launch
        loses by a move; 0: it cannot be moved.
        """
        request = LeaseRequest(id=lease, epoch=epoch, hosts=list(hosts), move_seconds=move_seconds)
        return self.ask("Renew", request, LeaseInfo, timeout)

    def move(
        self, lease_id: str, epoch: int, word: str, *, timeout: float | None = None
    ) -> PartitionInfo:
        """Report that nothing of a launch runs any more. Return where its partition is from now on.

        word: the value of `LeaseInfo.move`.
        """
        request = MoveRequest(id=lease_id, epoch=epoch, move=word)
        return self.ask("Move", request, PartitionInfo, timeout)

    def release(
        self,
        lease: str,
        epoch: int,
        *,
        hosts: Sequence[str] = (),
        confirmed: bool = True,
        force: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Give a lease back. A partition that was made for it is removed with it.

        hosts: those on which its instances have ended; none named: all. confirmed: whether they
        surely have ended. force: as an administrator, wait for nothing (wire.LeaseRequest).
        """
        request = LeaseRequest(
            id=lease, epoch=epoch, hosts=list(hosts), confirmed=confirmed, force=force
        )
        self.ask("Release", request, Empty, timeout)

    def wait(self, request: WaitRequest) -> WaitReply:
        """Join the queue, or ask for one's state in it.

        The answer may take the request's timeout.
        """
        return self.ask("Wait", request, WaitReply, self.timeout + request.timeout)

    def leave(self, waiter: str) -> None:
        """Leave the queue."""
        self.ask("Leave", WaiterName(id=waiter), Empty)

    def list_waiters(self, *, cluster: str = "", allocation: str = "") -> list[WaiterInfo]:
        """Return the queue, from its first waiter on."""
        request = ListRequest(cluster=cluster, allocation=allocation)
        return self.ask("ListWaiters", request, WaiterList).waiters

    def explain(
        self,
        name: str = "",
        *,
        spec: PartitionSpec | None = None,
        duration: float = 0.0,
        for_job: bool = False,
    ) -> Explanation:
        """Explain why a request cannot start now, or the state of a waiter, lease or partition."""
        request = ExplainRequest(name=name, spec=spec, duration=duration, for_job=for_job)
        return self.ask("Explain", request, Explanation)
