"""The lease on a partition for the time of a run: acquired, renewed by the keeper, released."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from podwright.client import Client, NamedServer
from podwright.errors import (
    Fenced,
    NotFound,
    PodwrightError,
    TimedOut,
    Unavailable,
)
from podwright.wire import AcquireReply, PartitionInfo

_CALL_TIMEOUT = 3.0
#: Seconds for which a server that is down is asked to take a lease back, and between two attempts.
_RELEASE_TIMEOUT, _RELEASE_RETRY_S = 8.0, 0.5
_LEASE_KIND, _PARTITION_KIND = "lease", "partition"
#: The protocol of a controller without leases.
VENDOR_PROTOCOLS = ["virmgrpc"]


class BorrowedPartition:
    """A partition of a controller without leases, with the interface of `Lease`."""

    #: The start of the warning when it could not be given back.
    release_warning = "the partition was not removed"
    renewed = False

    def __init__(
        self, client: Client, partition: PartitionInfo, created: bool, keep_partition: bool
    ) -> None:
        self.partition, self.created = partition, created
        self.reason: PodwrightError | None = None
        self._client, self._remove = client, created and not keep_partition

    @property
    def holding(self) -> tuple[object, ...]:
        """The values by which a keeper removes a partition that was made for a launch that is
        gone.
        """
        return (
            (_PARTITION_KIND, self._client.server.plain(), self.partition.name, 0, ())
            if self._remove
            else ()
        )

    def release(self, cleared_hosts: Sequence[str] | None = None) -> PodwrightError | None:
        """Remove the partition if it was made for this launch. Returns the error that
        prevented it.
        """
        with self._client:
            try:
                if self._remove:
                    self._client.remove_partition(self.partition.name)
            except PodwrightError as error:
                return error
        return None


class Lease:
    """A lease that is held. reason: why it is over, if it is."""

    #: The start of the warning when it could not be given back.
    release_warning = "the lease was not given back and ends by itself"
    #: Whether the lease must be renewed.
    renewed = True

    def __init__(self, client: Client, reply: AcquireReply) -> None:
        self.partition = reply.partition
        self.created = reply.created
        self.reason: PodwrightError | None = None
        self._client = client
        self._lease = reply.lease
        #: The hosts of its instances from now on, if the server does not know them yet.
        self.hosts: list[str] = []

    @property
    def holding(self) -> tuple[object, ...]:
        """The values that a keeper needs about it (`KeptHolding`)."""
        return (
            _LEASE_KIND,
            self._client.server.plain(),
            self._lease.id,
            self._lease.epoch,
            self.hosts,
        )

    @property
    def machines(self) -> str:
        """The names of the partition's machines, separated by spaces."""
        gcds = self.partition.gcds
        return " ".join(dict.fromkeys(device.machine for gcd in gcds for device in gcd))

    def move(self, word: str, warn: Callable[[str], None]) -> None:
        """Take the devices that the server has for the move. No instance may run.

        The server is asked until it answers, as long as the lease may last. Raises PodwrightError.
        """
        deadline, has_warned = time.monotonic() + self._lease.ttl, False
        while True:
            try:
                self.partition = self._client.move(self._lease.id, self._lease.epoch, word)
                return
            except (Unavailable, TimedOut) as error:
                if time.monotonic() > deadline:
                    raise
                if not has_warned:
                    warn(f"{error.message} Asking until it answers.")
                    has_warned = True
                time.sleep(_RELEASE_RETRY_S)

    def release(self, cleared_hosts: Sequence[str] | None = None) -> PodwrightError | None:
        """Give the lease back. Returns the error that prevented it; the lease then expires by
        itself.

        cleared_hosts: the hosts on which no instance is left. None: all hosts of the launch.
        """
        with self._client:
            try:
                if self.reason is None:
                    _release_lease(self._client, self._lease.id, self._lease.epoch, cleared_hosts)
            except PodwrightError as error:
                return error
        return None


class KeptHolding:
    """The keeper's side of what a launch holds: `lease_values` of a Lease or of a Borrowed.

    well: whether the last call was answered. A server that is down for a while is no reason to stop
    a program. It is asked again until a server that answers declares that the lease is over.
    """

    def __init__(
        self, lease_values: Sequence[object], connect_client: Callable[[NamedServer], Client]
    ) -> None:
        kind, server, name, epoch, hosts = lease_values
        assert isinstance(hosts, (list, tuple))
        assert isinstance(name, str)
        assert isinstance(epoch, int)
        self.well = True
        #: The word of the request to move, and its seconds; or nothing.
        self.move: tuple[str, float] | None = None
        #: What is wrong with the partition.
        self.errors: tuple[str, ...] = ()
        self._server = NamedServer.of_plain(server)
        self._kind, self._name, self._epoch, self._hosts = kind, name, epoch, hosts
        self._connect = connect_client
        self._client: Client | None = None

    def renew(self, move_seconds: float = 0.0) -> tuple[str, str] | None:
        """Renew the lease. If it is over, returns the code and the text of the error.

        move_seconds: what the launch loses by a move; 0: it cannot be moved.
        """
        if self._kind != _LEASE_KIND:
            return None
        try:
            client = self._connected_client()
            lease_info = client.renew(
                self._name,
                self._epoch,
                hosts=self._hosts,
                move_seconds=move_seconds,
                timeout=_CALL_TIMEOUT,
            )
            self.move = (lease_info.move, lease_info.move_within) if lease_info.move else None
            self.errors = tuple(lease_info.errors)
            self.well = True
        except (Fenced, NotFound) as error:
            return error.code, error.message
        except PodwrightError:
            self.well = False
        return None

    def give_back(self, cleared_hosts: Sequence[str] | None = None) -> bool:
        """Release what the launch holds, when poprun is gone. Returns whether the server answered.

        cleared_hosts: as in `Lease.release`.
        """
        deadline = time.monotonic() + _RELEASE_TIMEOUT
        while True:
            try:
                if self._kind == _LEASE_KIND:
                    _release_lease(self._connected_client(), self._name, self._epoch, cleared_hosts)
                else:
                    self._connected_client().remove_partition(self._name)
                return True
            except (Unavailable, TimedOut):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_RELEASE_RETRY_S)
            except PodwrightError:
                return True

    def _connected_client(self) -> Client:
        if self._client is None:
            self._client = self._connect(self._server)
        return self._client


def _release_lease(
    client: Client, lease_id: str, epoch: int, cleared_hosts: Sequence[str] | None
) -> None:
    client.release(
        lease_id,
        epoch,
        hosts=cleared_hosts or (),
        confirmed=cleared_hosts is None or bool(cleared_hosts),
    )


def over(error_code: str, message: str) -> PodwrightError:
    """Return the error that the keeper has reported."""
    return (NotFound if error_code == NotFound.code else Fenced)(message)
