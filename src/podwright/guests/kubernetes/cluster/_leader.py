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

#: DURATION: seconds until the lease expires. _RENEW_S: seconds between two renewals.
DURATION: Final = 15
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
    """One candidate for the lease. wall: returns seconds since 1970.

    A candidate that restarts under the same identity still has the lease.
    """

    def __init__(
        self,
        leases: Leases,
        namespace: str,
        name: str,
        identity: str,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._leases, self._namespace, self._name = leases, namespace, name
        self._identity, self._wall = identity, wall
        self._seen: tuple[str, float] = ("", 0.0)

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        last_problem = ""
        while True:
            try:
                if await self.attempt():
                    return
            except PodwrightError as error:
                if str(error) != last_problem:
                    _log.warning("lease: %s", error)
                last_problem = str(error)
            await asyncio.sleep(_RETRY_S)

    async def hold(self) -> None:
        """Renew the lease until it is lost."""
        last = self._wall()
        while self._wall() - last < DURATION:
            await asyncio.sleep(_RENEW_S)
            try:
                if not await self.attempt():
                    return
                last = self._wall()
            except PodwrightError as error:
                _log.warning("lease: %s", error)

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
                    await self._give_up()

    async def attempt(self) -> bool:
        """Take or renew the lease. Return False if it is somebody else's.

        A holder counts as alive as long as its renewals change, by our own clock. The clocks of two
        hosts are never compared.
        """
        now = self._wall()
        try:
            lease = await self._leases.lease(self._namespace, self._name)
        except NotFound:
            body = {"metadata": {"name": self._name}}
            await self._put(body, self._spec({}, now, 0), new=True)
            return True
        spec = lease.get("spec") or {}
        holder, renewed = str(spec.get("holderIdentity") or ""), str(spec.get("renewTime") or "")
        if holder not in ("", self._identity):
            if self._seen[0] != f"{holder} {renewed}":
                self._seen = (f"{holder} {renewed}", now)
            if now - self._seen[1] < float(spec.get("leaseDurationSeconds") or DURATION):
                return False
        try:
            count = int(spec.get("leaseTransitions") or 0)
            await self._put(lease, self._spec(spec, now, count + (holder != self._identity)))
        except WrongState:
            return False
        return True

    async def _give_up(self) -> None:
        lease = await self._leases.lease(self._namespace, self._name)
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") == self._identity:
            free = {key: value for key, value in spec.items() if key != "holderIdentity"}
            await self._put(lease, free)

    def _spec(self, old: dict[str, Any], now: float, count: int) -> dict[str, Any]:
        timestamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        )
        same = old.get("holderIdentity") == self._identity
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION,
            "acquireTime": old.get("acquireTime") if same else timestamp,
            "renewTime": timestamp,
            "leaseTransitions": count,
        }

    async def _put(self, lease: dict[str, Any], spec: dict[str, Any], *, new: bool = False) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": lease["metadata"],
            "spec": spec,
        }
        await self._leases.put_lease(self._namespace, self._name, body, new=new)
