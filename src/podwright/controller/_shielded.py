"""Changes of an administrator that have begun go on although their caller goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from podwright.controller._caller import Caller
    from podwright.controller._core import Core


class _Part(Protocol):
    _core: Core


_S = TypeVar("_S", bound=_Part)
_R = TypeVar("_R")
_V = TypeVar("_V")
_Call = Callable[[_S, "Caller", _R], Coroutine[Any, Any, _V]]


def to_its_end(call: _Call[_S, _R, _V]) -> _Call[_S, _R, _V]:
    """The call, as a task of the controller's own."""

    @wraps(call)
    async def whole(self: _S, caller: Caller, request: _R) -> _V:
        done: _V = await asyncio.shield(self._core.spawn(call(self, caller, request)))
        return done

    return whole
