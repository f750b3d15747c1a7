"""A server, from Python. It is found in the same way as by the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from podwright.api._listing import Listing, html_card, html_table
from podwright.api._server_variables import server_variables, with_variables
from podwright.client import TIMEOUT, Client, FoundServer, ServerOptions, find_server
from podwright.errors import NotFound
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    CreateRequest,
    EventList,
    EventsRequest,
    JobList,
    ListRequest,
    PartitionSpec,
    QuotaList,
    SyncType,
    WaitRequest,
    holder_words,
)

if TYPE_CHECKING:
    from podwright.api._partition import Partition
    from podwright.api._pod_admin import PodAdmin
    from podwright.wire import (
        AllocationInfo,
        ClusterInfo,
        DeviceInfo,
        EventInfo,
        Explanation,
        JobInfo,
        LeaseInfo,
        PartitionInfo,
        QuotaInfo,
        ServerInfo,
        WaiterInfo,
    )


def connect(
    host: str = "",
    *,
    port: int | None = None,
    config: str = "",
    user: str = "",
    key: str = "",
    certs: str = "",
    timeout: float = TIMEOUT,
) -> Pod:
    """Find a server, as the commands do, and connect to it.

    Without arguments, `connect` takes the first of these: the server that the environment or
    `/etc/vipu/vipu-cli.hcl` names, this machine's, this user's own, and `localhost:8090`. If there
    is none, it starts a server with simulated devices.

    host: `HOST`, `HOST:PORT`, or several, separated by commas. config: a settings file in place of
    `/etc/vipu/vipu-cli.hcl`. user, key: the name and access key of a user of that server. certs:
    the folder with `ca.pem`, `cert.pem` and `key.pem`. timeout: seconds that a call may take.

    Raises `Unavailable` where no server answers, `InvalidRequest` for an address that is malformed.

    >>> with podwright.connect() as pod:
    ...     len(pod.devices())
    16
    """
    options = ServerOptions(
        host=host,
        port="" if port is None else str(port),
        config=config,
        user=user,
        key=key,
        certs=certs,
    )
    return Pod(find_server(options, os.environ, timeout=timeout))


@contextmanager
def partition(
    size: int,
    *,
    gcds: int = 0,
    wait: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Partition]:
    """Hold a partition of the server that `connect()` finds, for as long as a `with` block lasts.

    `Pod.partition` has more options.

    >>> with podwright.partition(4) as held:
    ...     held.info.size
    4
    """
    with (
        connect() as pod,
        pod.partition(size, gcds=gcds, wait=wait, progress=progress) as held_partition,
    ):
        yield held_partition


class Pod:
    """A server and the devices behind it. Close it, or use it in a `with` block.

    Any thread may use it. Every method raises the errors of `podwright.errors`.

    >>> with podwright.connect() as pod:
    ...     pod.create(podwright.PartitionSpec(name="p1", size=4)).ready_state.value
    'ACTIVE'
    """

    def __init__(self, server: FoundServer) -> None:
        self._server, self._client = server, server.client

    @property
    def info(self) -> ServerInfo:
        """The server's description of itself, and of its caller, at the time when it was found."""
        return self._server.info

    @property
    def address(self) -> str:
        """The address of the server: `host:port`, or the path of its socket."""
        return self._server.address

    @property
    def simulated(self) -> bool:
        """Whether the devices exist only in software."""
        return self.info.simulated

    def _repr_html_(self) -> str:
        kind = "simulated" if self.simulated else "real"
        pod = html_card("pod", (("server", self.address), ("devices", kind)))
        return pod + html_table(self.clusters()) + html_table(self.partitions())

    def environment(self) -> dict[str, str]:
        """Return this process's environment, with the variables that lead to the same server."""
        return with_variables(os.environ, self.variables())

    def variables(self) -> dict[str, str]:
        """Return the variables by which other processes call this server as this program does.

        An empty value means that the variable must not be set.
        """
        return server_variables(self._server)

    @property
    def admin(self) -> PodAdmin:
        """The calls for administrators: agents, clusters, allocations, users, machines, quotas."""
        from podwright.api._pod_admin import PodAdmin

        return PodAdmin(self._client)

    def partition(
        self,
        size: int,
        *,
        gcds: int = 0,
        replicas: int = 0,
        name: str = "",
        allocation: str = "",
        link_domains: int = 0,
        sync_type: str = "DEFAULT",
        profile: str = "",
        wait: bool = False,
        duration: float = 0.0,
        update: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> Partition:
        """Create a partition and hold it: in a `with` block, or until `Partition.close()`.

        The partition goes within seconds of this program's end, even after `kill -9`.

        size: number of devices. gcds: number of host processes; 0 leaves it open, and each launch
        divides the partition as it needs. replicas: number of replicas; 0: one for each GCD. name:
        of an existing partition, which is then held and not removed, or of the one to create.
        allocation, link_domains, sync_type, profile: as for `vipu create partition`. wait: wait in
        the server's queue if the devices are not free. progress: called with one line for each
        change in the queue. duration: seconds for which the partition is needed, which the server
        uses in its estimates for others. update: if the partition of that name has another size or
        shape, remove it and create it anew, as `poprun --update-partition=yes` does; without it,
        such a partition is refused.

        Raises `NoCapacity` where the devices are not free, `InvalidRequest` for a request that can
        never be granted, `WrongState` for a partition of another size or shape.
        """
        from podwright.api._partition import Partition

        spec = PartitionSpec(
            name=name,
            size=size,
            allocation=allocation,
            num_gcds=gcds,
            num_replicas=replicas,
            num_ilds=link_domains,
            sync_type=SyncType(sync_type),
            profile=profile,
        )
        program_name = os.path.basename(sys.argv[0] or "python")
        request = AcquireRequest(
            spec=spec,
            create=True,
            update=update,
            duration=duration,
            holder=holder_words(program_name, os.getpid(), os.uname().nodename),
        )
        return Partition(self, self._acquire_lease(request, wait, progress))

    def _acquire_lease(
        self, request: AcquireRequest, wait: bool, progress: Callable[[str], None] | None
    ) -> AcquireReply:
        with self.client() as client:
            from podwright.client import acquire_in_line, acquire_now

            if not wait:
                return acquire_now(client, request)
            return acquire_in_line(client, request, progress or _ignore_progress)

    def create(
        self,
        spec: PartitionSpec,
        *,
        wait: bool = False,
        priority: int = 0,
        duration: float = 0.0,
        progress: Callable[[str], None] | None = None,
    ) -> PartitionInfo:
        """Create a partition that nobody holds and that stays until `remove`. Return how it stands.

        Its state is ACTIVE, or ERROR with the reason in `errors`. wait, duration, progress: as for
        `partition`. priority: in the queue; a higher one goes first, and one above 0 is for
        administrators alone.

        Raises `AlreadyExists`, `NoCapacity`, and `InvalidRequest` for a request that can never be
        granted.
        """
        if not wait:
            return self._client.create_partition(spec, duration=duration)
        from podwright.client import wait_in_line

        wait_request = WaitRequest(
            create=CreateRequest(spec=spec, duration=duration), priority=priority
        )
        with self.client() as client:
            created_partition = wait_in_line(
                client, wait_request, progress or _ignore_progress
            ).partition
        assert created_partition is not None
        return created_partition

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Yield a connection for several calls of one's own.

        `client.call` offers the whole protocol.
        """
        with self._client.another() as client:
            yield client

    def explain(
        self, subject: int | str | PartitionSpec, *, gcds: int = 0, duration: float = 0.0
    ) -> Explanation:
        """Explain why a partition cannot be had now and which could, or how something stands.

        subject: a size, with gcds; a whole request; or the name of a partition, a lease or a
        waiter. duration: seconds for which the partition would be needed. The call changes nothing.
        """
        if isinstance(subject, int):
            subject = PartitionSpec(name="", size=subject, num_gcds=gcds)
        if isinstance(subject, str):
            return self._client.explain(subject)
        return self._client.explain(spec=subject, duration=duration)

    def events(self, *, since: int = 0, follow: bool = False) -> Generator[EventInfo, None, None]:
        """Yield the events, oldest first: who did what, when, from where, and how it ended.

        since: only events after that number. follow: go on with new events, without end.
        """
        from podwright.client import POLL_SECONDS

        with self.client() as client:
            has_more = True
            while follow or has_more:
                wait_s = POLL_SECONDS if follow else 0.0
                request = EventsRequest(since=since, timeout=wait_s)
                reply = client.ask(
                    "ListEvents", request, EventList, client.timeout + request.timeout
                )
                yield from reply.events
                has_more, since = bool(reply.events) and reply.last > since, reply.last

    def partitions(self, *, cluster: str = "", allocation: str = "") -> Listing[PartitionInfo]:
        """Return the visible partitions, by name; of one cluster or allocation if it is named."""
        return Listing(self._client.list_partitions(cluster=cluster, allocation=allocation))

    def devices(self, *, cluster: str = "", allocation: str = "") -> Listing[DeviceInfo]:
        """Return all devices, in the order of cluster, link domain, offset."""
        return Listing(self._client.list_devices(cluster=cluster, allocation=allocation))

    def clusters(self) -> Listing[ClusterInfo]:
        """Return all clusters."""
        return Listing(self._client.list_clusters())

    def allocations(self, *, cluster: str = "") -> Listing[AllocationInfo]:
        """Return the allocations that the caller may see."""
        return Listing(self._client.list_allocations(cluster=cluster))

    def leases(self) -> Listing[LeaseInfo]:
        """Return the leases, by id."""
        return Listing(self._client.list_leases())

    def end_lease(self, lease: str, *, force: bool = False) -> LeaseInfo:
        """End a lease.

        Return it as it was, or as it stands while its devices are not free yet (FENCING).

        force: wait for nobody. An administrator passes it who knows that nothing of the lease runs.
        Raises `NotFound`.
        """
        lease_info = self._find_lease(lease)
        self._client.release(lease_info.id, lease_info.epoch, confirmed=False, force=force)
        return next(
            (info for info in self._client.list_leases() if info.id == lease),
            lease_info,
        )

    def _find_lease(self, lease_id: str) -> LeaseInfo:
        leases = self._client.list_leases()
        if matching_lease := next((lease for lease in leases if lease.id == lease_id), None):
            return matching_lease
        known_leases = f"there are: {', '.join(lease.id for lease in leases)}"
        work = known_leases if leases else "there is no lease at all"
        raise NotFound(f"there is no lease {lease_id!r}", would_work=work)

    def waiters(self) -> list[WaiterInfo]:
        """Return the server's queue; the waiter that is served first is first."""
        return self._client.list_waiters()

    def jobs(self) -> list[JobInfo]:
        """Return the jobs that wait in schedulers' queues, each scheduler's in its own order."""
        return self._client.ask("ListJobs", ListRequest(), JobList).jobs

    def leave(self, waiter: str) -> None:
        """Take a waiter out of the queue, by its id. Raises `NotFound`."""
        self._client.leave(waiter)

    def quotas(self, *, allocation: str = "") -> list[QuotaInfo]:
        """Return the quotas that the caller may see; of one allocation if it is named."""
        request = ListRequest(allocation=allocation)
        return self._client.ask("ListQuotas", request, QuotaList).quotas

    def get(self, name: str) -> PartitionInfo:
        """Return a partition as it stands now. Raises `NotFound`."""
        return self._client.get_partition(name)

    def reset(self, name: str, *, relocatable: bool = False, force: bool = False) -> PartitionInfo:
        """Reset the devices of a partition. Return how it stands then.

        relocatable: the partition may move to other devices. force: reset it even while somebody
        holds it.

        Raises `Held` where somebody holds it.
        """
        return self._client.reset_partition(name, relocatable=relocatable, force=force)

    def remove(self, name: str, *, force: bool = False) -> None:
        """Remove a partition. force: remove it despite errors and leases.

        Raises `Held` where somebody has a lease on it.
        """
        self._client.remove_partition(name, force=force)

    def close(self) -> None:
        """Close the connection. Partitions that are held stay held."""
        with self._client.one_at_a_time:
            self._client.close()

    def __enter__(self) -> Pod:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        suffix = ", simulated" if self.simulated else ""
        return f"<podwright.Pod at {self.address}{suffix}>"


def _ignore_progress(progress_line: str) -> None:
    """Ignore a line of progress."""
