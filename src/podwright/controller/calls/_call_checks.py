"""Checks and records every call, as its `Method` declares.

Before a call, the controller must be serving, and the caller's role must allow such a call at all.
The function of the call itself checks who owns the object. After the call, the audit records what
the row names, however the call ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from operator import attrgetter
from typing import Any, Final

from podwright.controller.calls._call_context import Services
from podwright.controller.state._audit_intents import CURRENT
from podwright.controller.state._caller import ANONYMOUS, Caller, Role
from podwright.errors import Denied, PodwrightError, Unavailable
from podwright.wire import METHODS, AuditEntry, May, Method, Rights, Value

MAX_SUBJECT_LENGTH: Final = 80  #: characters of an object's name in messages and in the audit

#: Carries out one call: services, caller, request.
CallFunction = Callable[[Services, Caller, Any], Coroutine[Any, Any, Value]]
#: The same for one controller, checked and audited: caller, request.
BoundCall = Callable[[Caller, Any], Coroutine[Any, Any, Any]]


def checked_calls(
    services: Services,
    functions_by_method: Mapping[str, CallFunction],
    check_serving: Callable[[], None],
) -> dict[str, BoundCall]:
    """Each function of a table, doing what is declared of its method; by the method's name.

    check_serving: raises Unavailable while nothing is served.
    """
    calls_by_method = {}
    for name, function in functions_by_method.items():
        method = METHODS[name]
        bound_call = _with_checks(services, method, function, check_serving)
        if method.entry is not AuditEntry.NOTHING:
            bound_call = _with_audit(services, method, bound_call)
        calls_by_method[name] = bound_call
    return calls_by_method


_SUBJECT_READERS: Final = {
    name: tuple(map(attrgetter, method.about.fields))
    for name, method in METHODS.items()
    if method.about is not None
}


def subject_of(method: Method, request: Any) -> str:
    """The shortened name of the object that a request concerns, or empty."""
    for read_name in _SUBJECT_READERS.get(method.name, ()):
        if object_name := read_name(request):
            return str(object_name)[:MAX_SUBJECT_LENGTH]
    return ""


def check_role(caller: Caller, method: Method, request: Any) -> None:
    """Raise Denied for a caller whose role does not allow the call."""
    if method.may[_rights_column(caller)] is not May.NO:
        return
    action = f"{method.function.replace('_', ' ')} {subject_of(method, request)}".rstrip()
    if method.may.user is May.NO:
        raise Denied(
            f"you are {caller.name}, and no administrator",
            operation=action,
            would_work="ask an administrator to do it",
            caller=caller.name,
        )
    if caller.role is Role.SCHEDULER:
        raise Denied(
            f"{caller.name} has the scheduler's role, which has a queue of its own",
            operation=action,
            would_work="create partitions in the name of users and their jobs",
            caller=caller.name,
        )
    raise Denied(
        f"{caller.name} has the reader's role",
        operation=action,
        would_work="ask an administrator for the user's role",
        caller=caller.name,
    )


_RIGHTS_COLUMNS: Final = {role: Rights._fields.index(role.value) for role in Role}
_ANONYMOUS_COLUMN: Final = Rights._fields.index("anonymous")


def _rights_column(caller: Caller) -> int:
    if caller.role is Role.READER and caller.name == ANONYMOUS:
        return _ANONYMOUS_COLUMN
    return _RIGHTS_COLUMNS[caller.role]


def _with_checks(
    services: Services, method: Method, function: CallFunction, check_serving: Callable[[], None]
) -> BoundCall:
    async def checked(caller: Caller, request: Any) -> Any:
        check_serving()
        check_role(caller, method, request)
        await _acknowledge_use(services, caller, method, request)
        return await function(services, caller, request)

    return checked


async def _acknowledge_use(
    services: Services, caller: Caller, method: Method, request: Any
) -> None:
    """Acknowledge what a waiter was given, since the caller uses it."""
    method_object, unacknowledged = method.about, services.waiting.unacknowledged
    if unacknowledged and method_object is not None and not method_object.new:
        await unacknowledged.used(caller, subject_of(method, request))


def _with_audit(services: Services, method: Method, call: BoundCall) -> BoundCall:
    record_event = services.audit.record_event

    async def audited(caller: Caller, request: Any) -> Any:
        object_name = subject_of(method, request)
        owner = services.owner(object_name)
        intent = services.audit.new_intent(caller, method.name, object_name, owner)
        context_token = CURRENT.set(intent)
        try:
            reply = await call(caller, request)
        except PodwrightError as error:
            if isinstance(error, Unavailable) and not intent.number:
                raise  # it was not even tried
            record_event(caller, method.name, object_name, owner=owner, error=error, intent=intent)
            raise
        except asyncio.CancelledError:
            # What it began goes on. An intent that is not written yet stays open for that.
            written_intent = intent if intent.number else None
            event_detail = "its caller went away"
            record_event(
                caller,
                method.name,
                object_name,
                owner=owner,
                detail=event_detail,
                intent=written_intent,
            )
            raise
        finally:
            CURRENT.reset(context_token)
        partition = getattr(reply, "partition", None)
        object_name = getattr(partition, "name", "") or object_name
        lease = getattr(reply, "lease", None) if method.entry is AuditEntry.LEASE else None
        detail = f"lease {lease.id}" if lease is not None else ""
        owner = owner or services.owner(object_name)
        record_event(caller, method.name, object_name, owner=owner, detail=detail, intent=intent)
        return reply

    return audited
