"""Completes changes of an administrator that have begun, even if their caller disconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from podwright.errors import PodwrightError

if TYPE_CHECKING:
    from podwright.controller.state._caller import Caller

_log = logging.getLogger("podwright.controller")

_V = TypeVar("_V")


class _Tasks(Protocol):
    def spawn(self, work: Coroutine[Any, Any, _V]) -> asyncio.Task[_V]: ...


class _Services(Protocol):
    @property
    def state(self) -> _Tasks: ...


_S = TypeVar("_S", bound=_Services)
_R = TypeVar("_R")
_CallFunction = Callable[[_S, "Caller", _R], Coroutine[Any, Any, _V]]


def uninterruptible(service_call: _CallFunction[_S, _R, _V]) -> _CallFunction[_S, _R, _V]:
    """The call, as a task of the controller's own."""

    @wraps(service_call)
    async def uninterrupted(services: _S, caller: Caller, request: _R) -> _V:
        return await await_shielded(services.state.spawn(service_call(services, caller, request)))

    return uninterrupted


async def await_shielded(task: asyncio.Task[_V]) -> _V:
    """A task's outcome. The task goes on although its caller goes; its failure is then logged."""
    # asyncio.shield would do, with two more callbacks for each call.
    ended = asyncio.get_running_loop().create_future()
    task.add_done_callback(partial(_wake, ended))
    try:
        await ended
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)
        raise
    return task.result()


def _wake(ended: asyncio.Future[None], _: object) -> None:
    if not ended.done():
        ended.set_result(None)


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Nobody waits for this one any more: how it failed is said here."""
    if not task.cancelled() and (error := task.exception()) is not None:
        unexpected_error = None if isinstance(error, PodwrightError) else error
        _log.warning("%s, after its caller had gone", error, exc_info=unexpected_error)
