"""One way into the controller for every front: who calls what, counted, and never half done."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from podwright.controller import Caller, Role
from podwright.server._identity import Identity
from podwright.wire import (
    METHODS,
    Denied,
    Internal,
    ListRequest,
    Method,
    PodwrightError,
    ServerInfo,
    Unavailable,
    Value,
)

if TYPE_CHECKING:
    from podwright.controller import Controller

_log = logging.getLogger("podwright.server")
_Call = Callable[[Caller, Any], Awaitable[Value]]

#: The server's own hand, where it asks its controller.
SERVER = Caller(name="podwright", uid=None, role=Role.ADMINISTRATOR, origin="unix")


class Calls:
    """Carries calls to the controller.

    describe: what the server says of itself to a caller. clock: seconds, never backwards.
    """

    def __init__(
        self,
        controller: Controller,
        identity: Identity,
        describe: Callable[[Caller], Awaitable[ServerInfo]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.controller = controller
        self.identity = identity
        self._describe = describe
        self._clock = clock
        self._ending = False
        self.under_way = 0
        self.last_end = clock()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._table: dict[str, _Call] = {
            name: getattr(controller, snake_case(name))
            for name in METHODS
            if name not in ("GetServerInfo", "IssueToken")
        }
        self._table["GetServerInfo"] = self._server_info
        self._table["IssueToken"] = self._issue_token

    async def __call__(self, caller: Caller, method: Method, request: Value) -> Any:
        """The reply. Raises wire.PodwrightError and nothing else (but for a cancelled read).

        What changes something goes on to its end even when the caller has gone, so that a
        step is never left half done by a broken connection.
        """
        if self._ending:
            raise Unavailable("the server is ending", asked=method.name, would_work="try again")
        self.under_way += 1
        try:
            if not method.changes:
                return await self._table[method.name](caller, request)
            task = asyncio.ensure_future(self._table[method.name](caller, request))
            self._tasks.add(task)
            task.add_done_callback(self._done)
            return await asyncio.shield(task)
        except PodwrightError as refusal:
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s by %s: %s", method.name, caller.name, refusal.message)
            raise
        except Exception:
            _log.exception("%s by %s failed", method.name, caller.name)
            raise Internal(
                "the server failed", asked=method.name, would_work="its log says more"
            ) from None
        finally:
            self.under_way -= 1
            self.last_end = self._clock()

    def _done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it, or has gone

    def end(self) -> None:
        """Refuse new calls from now on."""
        self._ending = True

    async def drain(self, grace: float) -> None:
        """Wait for the changes that are under way; what is late ends as if the server crashed."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def idle(self) -> bool:
        """Is nobody served: no call under way, no partition, no lease?"""
        if self.under_way or self._tasks:
            return False
        return await self.empty()

    async def empty(self) -> bool:
        """Does nobody hold anything: no partition, no lease?"""
        everything = ListRequest()
        if (await self.controller.list_partitions(SERVER, everything)).partitions:
            return False
        return not (await self.controller.list_leases(SERVER, everything)).leases

    async def _server_info(self, caller: Caller, _: Value) -> ServerInfo:
        return await self._describe(caller)

    async def _issue_token(self, caller: Caller, _: Value) -> Value:
        if caller.origin != "unix":
            raise Denied("tokens are given on the Unix socket alone", asked="IssueToken")
        return self.identity.issue(caller)


def snake_case(name: str) -> str:
    """`ListPartitions` -> `list_partitions`: the controller's own name for a call."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
