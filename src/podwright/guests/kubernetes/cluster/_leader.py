"""Lets one operator act at a time, by a Lease of the cluster.

The lease saves duplicate work and log lines. It is not needed for correctness: two operators that
act at once make objects of the same names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from podwright.errors import NotFound, PodwrightError, WrongState

_log = logging.getLogger("podwright.guests.kubernetes")

#: LEASE_SECONDS: seconds until the lease expires. _RENEW_S: seconds between two renewals.
LEASE_SECONDS: Final = 15
_RENEW_S: Final = 5.0
_RETRY_S: Final = 2.0


class Leases(Protocol):
    """The API by which the lease is read and written."""

    async def lease(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the lease. Raises NotFound."""
        ...

    async def put_lease(
        self, namespace: str, name: str, body: dict[str, Any], *, new: bool
    ) -> None:
        """Write the lease. Raises WrongState where somebody else wrote it first."""
        ...


class Leader:
    """One candidate for the lease. wall_clock: returns seconds since 1970.

    A candidate that restarts under the same identity still has the lease.
    """

    def __init__(
        self,
        leases: Leases,
        namespace: str,
        lease_name: str,
        identity: str,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._leases, self._namespace, self._name = leases, namespace, lease_name
        self._identity, self._wall = identity, wall_clock
        self._seen: tuple[str, float] = ("", 0.0)
        self.lost = ""  #: why the lease was not renewed, in words

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        problem = ""
        while True:
            try:
                if await self.attempt():
                    return
            except PodwrightError as error:
                if str(error) != problem:
                    _log.warning("lease: %s", error)
                problem = str(error)
            await asyncio.sleep(_RETRY_S)

    async def hold(self) -> None:
        """Renew the lease until it is lost."""
        renewed_at = self._wall()
        while self._wall() - renewed_at < LEASE_SECONDS:
            await asyncio.sleep(_RENEW_S)
            try:
                if not await self.attempt():
                    self.lost = "the lease is somebody else's"
                    return
                renewed_at = self._wall()
            except PodwrightError as error:
                _log.warning("lease: %s", error)
        self.lost = f"the lease could not be renewed for {LEASE_SECONDS} s"

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[asyncio.Task[None]]:
        """Renew the lease within the block. The task that is yielded ends when the lease is lost.

        After the block the lease is given up, so that the next candidate need not wait until it
        expires.
        """
        renewal = asyncio.create_task(self.hold())
        try:
            yield renewal
        finally:
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)
            with contextlib.suppress(PodwrightError, TimeoutError):
                async with asyncio.timeout(_RENEW_S):
                    await self._release_lease()

    async def attempt(self) -> bool:
        """Take or renew the lease. Return False if it is somebody else's.

        A holder counts as alive as long as its renewals change, by our own clock. The clocks of two
        hosts are never compared.
        """
        now = self._wall()
        try:
            lease = await self._leases.lease(self._namespace, self._name)
        except NotFound:
            new_lease = {"metadata": {"name": self._name}}
            await self._write_lease(new_lease, self._lease_spec({}, now, 0), new=True)
            return True
        lease_spec = lease.get("spec") or {}
        holder, renew_time = (
            str(lease_spec.get("holderIdentity") or ""),
            str(lease_spec.get("renewTime") or ""),
        )
        if holder not in ("", self._identity):
            if self._seen[0] != f"{holder} {renew_time}":
                self._seen = (f"{holder} {renew_time}", now)
            if now - self._seen[1] < float(lease_spec.get("leaseDurationSeconds") or LEASE_SECONDS):
                return False
        try:
            transitions = int(lease_spec.get("leaseTransitions") or 0)
            await self._write_lease(
                lease, self._lease_spec(lease_spec, now, transitions + (holder != self._identity))
            )
        except WrongState:
            return False
        return True

    async def _release_lease(self) -> None:
        lease = await self._leases.lease(self._namespace, self._name)
        lease_spec = lease.get("spec") or {}
        if lease_spec.get("holderIdentity") == self._identity:
            released_spec = {
                field: value for field, value in lease_spec.items() if field != "holderIdentity"
            }
            await self._write_lease(lease, released_spec)

    def _lease_spec(self, old_spec: dict[str, Any], now: float, transitions: int) -> dict[str, Any]:
        timestamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        )
        is_holder = old_spec.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": old_spec.get("acquireTime") if is_holder else timestamp,
            "renewTime": timestamp,
            "leaseTransitions": transitions,
        }

    async def _write_lease(
        self, lease: dict[str, Any], spec: dict[str, Any], *, new: bool = False
    ) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease["metadata"],
            "spec": spec,
        }
        await self._leases.put_lease(self._namespace, self._name, body, new=new)
