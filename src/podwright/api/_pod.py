"""A server, from Python: found as the commands find it."""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock  # threading would cost each command two milliseconds
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from podwright.api._server_variables import server_variables, with_variables
from podwright.client import TIMEOUT, Client, FoundServer, ServerOptions, find_server
from podwright.errors import NotFound
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    CreateRequest,
    EventsRequest,
    PartitionSpec,
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
    """Find a server, as the commands do, and talk to it.

    Without arguments it is the one that the environment or `/etc/vipu/vipu-cli.hcl` names, this
    machine's, this user's own, or `localhost:8090`; where there is none, one with simulated devices
    is started.

    host: `HOST`, `HOST:PORT` or several, with commas. config: settings in place of
    `/etc/vipu/vipu-cli.hcl`. user, key, certs: who you are there, and the folder with `ca.pem`,
    `cert.pem` and `key.pem`. timeout: seconds that a call may take.

    Raises `Unavailable` where none answers, `InvalidRequest` for an address that is none.
    """
    options = ServerOptions(
        host=host,
        port="" if port is None else str(port),
        config=config,
        user=user,
        key=key,
        certs=certs,
    )
    return Pod(find_server(options, os.environ, timeout=timeout), options)


@contextmanager
def partition(
    size: int,
    *,
    gcds: int = 0,
    wait: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Partition]:
    """A partition of the server that `connect()` finds, for as long as a `with` block lasts.

    As `Pod.partition`, which has more to choose.
    """
    with connect() as pod, pod.partition(size, gcds=gcds, wait=wait, progress=progress) as made:
        yield made


class Pod:
    """A server and the devices behind it. Close it, or use it in a `with` block.

    Any thread may use it. Every method raises the errors of `podwright.errors`.
    """

    def __init__(self, found: FoundServer, options: ServerOptions) -> None:
        self._found, self._client, self._options = found, found.client, options
        self._lock = allocate_lock()

    @property
    def info(self) -> ServerInfo:
        """What the server said of itself when it was found, and who we are to it."""
        return self._found.info

    @property
    def address(self) -> str:
        """Where it is: `host:port`, or its socket."""
        return self._found.address

    @property
    def simulated(self) -> bool:
        """Whether its devices exist only in software."""
        return self.info.simulated

    def environment(self) -> dict[str, str]:
        """This process's environment, in which other programs find the same server."""
        return with_variables(os.environ, server_variables(self._found, self._options))

    @property
    def admin(self) -> PodAdmin:
        """What administrators may do: agents, clusters, allocations, users, machines, quotas."""
        from podwright.api._pod_admin import PodAdmin

        return PodAdmin(self._client, self._lock)

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
        progress: Callable[[str], None] | None = None,
    ) -> Partition:
        """Create a partition and hold it: in a `with` block, or until `Partition.close()`.

        Whatever happens to this program, `kill -9` too, the partition goes within seconds.

        size: devices. gcds: host processes; 0 leaves it open, and each launch divides it as it
        needs. replicas: 0: as many as GCDs. name: of a partition that is there, which is then held
        and not removed; or of the one to create. allocation, link_domains, sync_type, profile: as
        `vipu create partition` has them. wait: in the server's line, if the devices are not free;
        progress: hears of each change there, a line. duration: seconds for which it is needed, so
        that others know.

        Raises `NoCapacity` where they are not free, `InvalidRequest` for what can never be.
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
        program = os.path.basename(sys.argv[0] or "python")
        request = AcquireRequest(
            spec=spec,
            create=True,
            duration=duration,
            holder=holder_words(program, os.getpid(), os.uname().nodename),
        )
        return Partition(self, self._acquire(request, wait, progress))

    def _acquire(
        self, request: AcquireRequest, wait: bool, progress: Callable[[str], None] | None
    ) -> AcquireReply:
        with self.client() as client:
            if not wait:
                return client.acquire(request)
            from podwright.client import acquire_in_line

            return acquire_in_line(client, request, progress or _unheard)

    def create(
        self,
        spec: PartitionSpec,
        *,
        wait: bool = False,
        priority: int = 0,
        duration: float = 0.0,
        progress: Callable[[str], None] | None = None,
    ) -> PartitionInfo:
        """Create a partition that nobody holds; it stays until `remove`. How it stands then.

        It is ACTIVE, or in ERROR, and `errors` says why. wait, duration, progress: as `partition`
        has them. priority: in the line; the higher goes first, above 0 for administrators alone.

        Raises `AlreadyExists`, `NoCapacity`, and `InvalidRequest` for what can never be.
        """
        if not wait:
            with self._lock:
                return self._client.create_partition(spec, duration=duration)
        from podwright.client import wait_in_line

        wanted = WaitRequest(create=CreateRequest(spec=spec, duration=duration), priority=priority)
        with self.client() as client:
            made = wait_in_line(client, wanted, progress or _unheard).partition
        assert made is not None
        return made

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A connection of one's own for several calls; `client.call` is the whole protocol."""
        with self._client.another() as client:
            yield client

    def explain(
        self, what: int | str | PartitionSpec, *, gcds: int = 0, duration: float = 0.0
    ) -> Explanation:
        """Why a partition cannot be had now, and what could; or how something stands.

        what: a size, with gcds; a whole request; or the name of a partition, a lease or a waiter.
        duration: seconds for which it would be needed. Changes nothing.
        """
        if isinstance(what, int):
            what = PartitionSpec(name="", size=what, num_gcds=gcds)
        with self._lock:
            if isinstance(what, str):
                return self._client.explain(what)
            return self._client.explain(spec=what, duration=duration)

    def events(self, *, since: int = 0, follow: bool = False) -> Generator[EventInfo, None, None]:
        """Who did what, when, from where, and how it ended: oldest first.

        since: only events after that number. follow: go on with what happens, without end.
        """
        from podwright.client import QUESTION

        with self.client() as client:
            more = True
            while follow or more:
                request = EventsRequest(since=since, timeout=QUESTION if follow else 0.0)
                found = client.list_events(request)
                yield from found.events
                more, since = bool(found.events) and found.last > since, found.last

    def partitions(self, *, cluster: str = "", allocation: str = "") -> list[PartitionInfo]:
        """The partitions that we may see, by name; of one cluster or allocation alone."""
        with self._lock:
            return self._client.list_partitions(cluster=cluster, allocation=allocation)

    def devices(self, *, cluster: str = "", allocation: str = "") -> list[DeviceInfo]:
        """All devices, in the order of cluster, link domain, offset."""
        with self._lock:
            return self._client.list_devices(cluster=cluster, allocation=allocation)

    def clusters(self) -> list[ClusterInfo]:
        """All clusters."""
        with self._lock:
            return self._client.list_clusters()

    def allocations(self, *, cluster: str = "") -> list[AllocationInfo]:
        """The allocations that we may see."""
        with self._lock:
            return self._client.list_allocations(cluster=cluster)

    def leases(self) -> list[LeaseInfo]:
        """The leases, by id."""
        with self._lock:
            return self._client.list_leases()

    def end_lease(self, lease: str, *, force: bool = False) -> LeaseInfo:
        """End a lease; as it was, or as it stands where its devices are not free yet (FENCING).

        force: as an administrator who knows that nothing of it runs: wait for nobody.
        Raises `NotFound`.
        """
        with self._lock:
            found = self._lease(lease)
            self._client.release(found.id, found.epoch, confirmed=False, force=force)
            return next((one for one in self._client.list_leases() if one.id == lease), found)

    def _lease(self, name: str) -> LeaseInfo:
        leases = self._client.list_leases()
        if found := next((one for one in leases if one.id == name), None):
            return found
        there_are = f"there are: {', '.join(one.id for one in leases)}"
        would_work = there_are if leases else "there is no lease at all"
        raise NotFound(f"there is no lease {name!r}", would_work=would_work)

    def waiters(self) -> list[WaiterInfo]:
        """The server's waiting line, the first one first."""
        with self._lock:
            return self._client.list_waiters()

    def leave(self, waiter: str) -> None:
        """Take a waiter out of the line, by its id. Raises `NotFound`."""
        with self._lock:
            self._client.leave(waiter)

    def quotas(self, *, allocation: str = "") -> list[QuotaInfo]:
        """The quotas that we may see; of one allocation alone."""
        with self._lock:
            return self._client.list_quotas(allocation=allocation)

    def get(self, name: str) -> PartitionInfo:
        """A partition as it stands now. Raises `NotFound`."""
        with self._lock:
            return self._client.get_partition(name)

    def reset(self, name: str, *, relocatable: bool = False, force: bool = False) -> PartitionInfo:
        """Reset the devices of a partition; how it stands then.

        relocatable: it may move to other devices. force: although somebody holds it.

        Raises `Held` where somebody does.
        """
        with self._lock:
            return self._client.reset_partition(name, relocatable=relocatable, force=force)

    def remove(self, name: str, *, force: bool = False) -> None:
        """Remove a partition. force: whatever errors and leases there are.

        Raises `Held` where somebody has a lease on it.
        """
        with self._lock:
            self._client.remove_partition(name, force=force)

    def close(self) -> None:
        """Let go of the connection. Partitions that are held stay so."""
        with self._lock:
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
        simulated = ", simulated" if self.simulated else ""
        return f"<podwright.Pod at {self.address}{simulated}>"


def _unheard(line: str) -> None:
    """Nobody wants to know how it goes."""
