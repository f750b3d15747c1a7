"""The one way from every front to the controller: looks calls up, counts them, catches faults."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from podwright.controller import Caller
from podwright.errors import Denied, Internal, PodwrightError, Unavailable
from podwright.server._call_counts import CallCounts
from podwright.server._caller_identity import Identity
from podwright.server._standby_answers import Standby
from podwright.wire import METHODS, Method, ServerInfo, TokenRequest, Value, joined, next_page

if TYPE_CHECKING:
    from podwright.controller import Controller

_log = logging.getLogger("podwright.server")
_CallFunction = Callable[[Caller, Any], Awaitable[Value]]


class Calls:
    """Carries calls to the controller.

    describe: returns the server's description of itself for a caller. clock: seconds, never
    backwards.
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
        self.count = 0
        self.figures = CallCounts()
        self._gate: Callable[[], PodwrightError | None] = lambda: None
        self._table = self._functions_by_method(controller)

    def adopt(self, controller: Controller, gate: Callable[[], PodwrightError | None]) -> None:
        """Carry calls to this controller from now on.

        gate: returns the reason why no call may be answered now, or None.
        """
        self.controller, self._gate = controller, gate
        self._table = self._functions_by_method(controller)

    def _functions_by_method(self, controller: Controller) -> dict[str, _CallFunction]:
        functions: dict[str, _CallFunction] = {
            name: getattr(controller, method.function)
            for name, method in METHODS.items()
            if name not in ("GetServerInfo", "IssueToken")
        }
        functions["GetServerInfo"] = self._server_info
        functions["IssueToken"] = self._issue_token
        return functions

    async def __call__(self, caller: Caller, method: Method, request: Value) -> Any:
        """Carry out a call. Return its reply.

        Raises wire.PodwrightError and nothing else, unless it is cancelled. The controller finishes
        a call that changes something, even when the caller has gone.
        """
        if self._ending:
            raise Unavailable("the server is ending", operation=method.name, would_work="try again")
        if (refusal := self._gate()) is not None and method.name != "GetServerInfo":
            raise refusal
        if method.changes and method.stored and self.controller.read_only is not None:
            raise Unavailable(
                f"the server is read only for now, since {self.controller.read_only.problem}",
                operation=method.name,
                would_work="free some space; it goes on by itself within seconds",
                read_only=True,
            )
        self.under_way += 1
        self.count += 1
        started_at, refusal_code = self._clock(), ""
        try:
            caller, request = self.controller.admitted(caller, request)
            reply = await self._table[method.name](caller, request)
            return self.controller.redacted(caller, reply)
        except PodwrightError as error:
            refusal_code = error.code
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s by %s: %s", method.name, caller.name, error.message)
            raise
        except Exception:
            refusal_code = Internal.code
            _log.exception("%s by %s failed", method.name, caller.name)
            raise Internal(
                "the server failed", operation=method.name, would_work="its log says more"
            ) from None
        finally:
            self.under_way -= 1
            self.last_end = self._clock()
            self.figures.call(method.name, self.last_end - started_at, refusal_code)

    async def whole(self, caller: Caller, method: Method, request: Value) -> Any:
        """Carry out a call as `__call__` does. Return a list with all its pages.

        Other calls are answered between two pages.
        """
        pages: list[Value] = []
        next_request: Value | None = request
        while next_request is not None:
            pages.append(await self(caller, method, next_request))
            next_request = next_page(next_request, pages[-1])
            await asyncio.sleep(0)
        return joined(pages)

    def end(self) -> None:
        """Refuse new calls from now on."""
        self._ending = True

    @property
    def idle(self) -> bool:
        """Whether nobody is served: there is no call under way, no partition and no lease."""
        return not self.under_way and self.controller.idle

    @property
    def standby(self) -> Standby | None:
        """The standby that is served while another server is active, or None."""
        controller: object = self.controller
        return controller if isinstance(controller, Standby) else None

    def health(self) -> dict[str, str]:
        """Return the body of `/healthz`: `ok`, or `standby` and which server is active."""
        if (standby := self.standby) is not None:
            return {"status": "standby", "active": standby.active}
        refusal = self._gate()
        return {"status": "ok"} if refusal is None else {"status": "standby", "active": ""}

    async def _server_info(self, caller: Caller, _: Value) -> ServerInfo:
        return await self._describe(caller)

    async def _issue_token(self, caller: Caller, request: Value) -> Value:
        if caller.origin != "unix":
            raise Denied("tokens are given on the Unix socket alone", operation="IssueToken")
        return self.identity.issue(caller, cast(TokenRequest, request).audience)
