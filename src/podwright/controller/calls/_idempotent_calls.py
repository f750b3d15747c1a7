"""An administrator's calls that change something: each has its effect once, to its end.

Such a call goes on although its caller goes away. Asked again under the same `request_id`, it is
not done again, and is answered by what there is now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Final, TypeVar

from podwright.controller.calls._call_checks import subject_of
from podwright.controller.calls._call_context import Services
from podwright.controller.state._caller import Caller
from podwright.controller.state._request_ids import RememberedRequest, RequestId
from podwright.errors import NotFound
from podwright.wire import METHODS, Empty, Method, Value

_V = TypeVar("_V", bound=Value)
_R = TypeVar("_R", bound=Value)
_CallFunction = Callable[[Services, Caller, _R], Coroutine[Any, Any, _V]]
#: The answer to a request that was done before; None: its effect is gone, and it is done anew.
_RepeatAnswer = Callable[[Services, RememberedRequest], Awaitable[_V | None]]

_METHODS_BY_FUNCTION: Final = {method.function: method for method in METHODS.values()}


def done_once(
    answer_repeat: _RepeatAnswer[_V],
) -> Callable[[_CallFunction[_R, _V]], _CallFunction[_R, _V]]:
    """A decorator: the call is done once. answer_repeat: answers a request that was done before."""

    def decorated(call: _CallFunction[_R, _V]) -> _CallFunction[_R, _V]:
        method = _METHODS_BY_FUNCTION[call.__name__]

        @wraps(call)
        async def once(services: Services, caller: Caller, request: _R) -> _V:
            async def answer(earlier_request: RememberedRequest) -> _V | None:
                return await answer_repeat(services, earlier_request)

            request_id = request_id_of(method, caller, request)
            return await services.requests.once(
                request_id, lambda: call(services, caller, request), answer
            )

        return once

    return decorated


def request_id_of(method: Method, caller: Caller, request: Value) -> RequestId:
    """The id of a request, with its caller and method."""
    return RequestId(
        caller.name, method.name, getattr(request, "request_id", ""), subject_of(method, request)
    )


async def answer_repeated_removal(services: Services, earlier_request: RememberedRequest) -> Empty:
    """The answer to a removal that was done before."""
    return Empty()


def removed_since_error(earlier_request: RememberedRequest, object_noun: str) -> NotFound:
    """The error for an object that the request created and that has been removed since."""
    return NotFound(
        f"{object_noun} {earlier_request.name} was there, and has been removed since",
        operation=f"{earlier_request.method} {earlier_request.name}",
        would_work="ask anew if it is still needed",
    )
