"""A server, from Python: found as the commands find it."""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock  # threading would cost each command two milliseconds
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from podwright.api._server_variables import open_client, server_variables, with_variables
from podwright.client import TIMEOUT, Client, FoundServer, ServerOptions, find_server
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    PartitionSpec,
    SyncType,
    WaitRequest,
    holder_words,
)

if TYPE_CHECKING:
    from podwright.api._partition import Partition
    from podwright.wire import (
        AllocationInfo,
        ClusterInfo,
        DeviceInfo,
        Explanation,
        LeaseInfo,
        PartitionInfo,
        ServerInfo,
        WaiterInfo,
    )

#: Seconds that one question for a place in line may take: Ctrl-C is heard in between.
_QUESTION = 2.0


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
            reply = client.wait(WaitRequest(acquire=request))
            told = ""
            try:
                while reply.lease is None or reply.partition is None:
                    line = _standing(reply.waiter)
                    if progress and line != told:
                        progress(line)
                    told = line
                    reply = client.wait(WaitRequest(id=reply.waiter.id, timeout=_QUESTION))
            except BaseException:
                client.leave(reply.waiter.id)
                raise
        return AcquireReply(lease=reply.lease, partition=reply.partition, created=reply.created)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A connection of one's own for several calls; `client.call` is the whole protocol."""
        client = open_client(self.environment())
        try:
            yield client
        finally:
            client.close()

    def explain(self, size: int, *, gcds: int = 0) -> Explanation:
        """Why a partition of that size cannot be had now, and what could. Changes nothing."""
        with self._lock:
            spec = PartitionSpec(name="", size=size, num_gcds=gcds)
            return self._client.explain(spec=spec)

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

    def waiters(self) -> list[WaiterInfo]:
        """The server's waiting line, the first one first."""
        with self._lock:
            return self._client.list_waiters()

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


def _standing(info: WaiterInfo) -> str:
    if info.state != "WAITING":
        return "it is our turn: the partition is being made"
    text = f"place {info.place} in the waiting line, for {info.needs}"
    return f"{text}; about {info.estimate:.0f} s more" if info.estimate else text
