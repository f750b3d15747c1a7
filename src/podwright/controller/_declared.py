"""What is done for every call as its `Method` declares it, so that no call can forget it.

Before: the controller must be serving, and the caller's role must allow such a call at all (whose
object it is, is known further in). After: a change stands in the events, however it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Protocol, TypeVar

from podwright.controller._audit import Audit
from podwright.controller._caller import ANONYMOUS, Caller, Role
from podwright.errors import Denied, PodwrightError, Unavailable
from podwright.wire import METHODS, May, Method, Rights, Value

_Call = Callable[[Any, Caller, Any], Coroutine[Any, Any, Value]]


class Declared(Protocol):
    """What carries out calls."""

    _audit: Audit

    def _check(self) -> None:
        """Raises Unavailable while nothing is served."""

    def _owner(self, name: str) -> str:
        """Whose the partition of this name is; empty for nobody's."""


_D = TypeVar("_D", bound=Declared)


def declared(kind: type[_D]) -> type[_D]:
    """Have each method that carries out a call of `wire.METHODS` do what is declared of it."""
    for method in METHODS.values():
        if (call := getattr(kind, method.function, None)) is not None:
            call = _checked(method, call)
            if method.changes and method.audited:
                call = _audited(method, call)
            setattr(kind, method.function, call)
    return kind


def check_role(caller: Caller, method: Method, request: Any) -> None:
    """Raises Denied for a caller whose role makes no such call."""
    if method.may[_column(caller)] is not May.NO:
        return
    action = f"{method.function.replace('_', ' ')} {subject(request)}".rstrip()
    if method.may.user is May.NO:
        raise Denied(
            f"you are {caller.name}, and no administrator",
            asked=action,
            would_work="ask an administrator to do it",
            caller=caller.name,
        )
    if caller.role is Role.SCHEDULER:
        raise Denied(
            f"{caller.name} has the scheduler's role, which has a queue of its own",
            asked=action,
            would_work="create partitions in the name of users and their jobs",
            caller=caller.name,
        )
    raise Denied(
        f"{caller.name} has the reader's role",
        asked=action,
        would_work="ask an administrator for the user's role",
        caller=caller.name,
    )


_COLUMNS = {name: place for place, name in enumerate(Rights._fields)}


def _column(caller: Caller) -> int:
    role = caller.role.value
    if caller.role is Role.READER and caller.name == ANONYMOUS:
        role = "anonymous"
    return _COLUMNS[role]


def _checked(method: Method, call: _Call) -> _Call:
    @wraps(call)
    async def checked(self: Declared, caller: Caller, request: Any) -> Value:
        self._check()
        check_role(caller, method, request)
        return await call(self, caller, request)

    return checked


def _audited(method: Method, call: _Call) -> _Call:
    @wraps(call)
    async def audited(self: Declared, caller: Caller, request: Any) -> Value:
        about = subject(request)
        owner = self._owner(about)
        try:
            reply = await call(self, caller, request)
        except Unavailable:
            raise  # it was not even tried
        except PodwrightError as error:
            self._audit.tell(caller, method.name, about, owner=owner, error=error)
            raise
        except asyncio.CancelledError:
            self._audit.tell(caller, method.name, about, owner=owner, detail="its caller went away")
            raise
        made, lease = getattr(reply, "partition", None), getattr(reply, "lease", None)
        about = getattr(made, "name", "") or about
        self._audit.tell(
            caller,
            method.name,
            about,
            owner=owner or self._owner(about),
            detail=f"lease {lease.id}" if lease is not None else "",
        )
        return reply

    return audited


def subject(request: Any) -> str:
    """The name of what a request is about; empty where it has none."""
    for source in (request, getattr(request, "spec", None)):
        for field in ("name", "id", "user", "allocation"):
            found = getattr(source, field, "")
            if isinstance(found, str) and found:
                return found[:80]
    return ""
