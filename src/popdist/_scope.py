"""Which instances take part right now, and their communicator.

Entering a scope costs nothing: MPI is asked for a communicator at the first collective inside,
which needs only those that take part. It is kept, since training loops come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from popdist import _backend, _environment
from popdist._errors import BadUse

Result = TypeVar("Result")


class Group(NamedTuple):
    """Instances that take part, in their order, and their communicator (None when one alone).

    instances: None where they cannot be counted (replicas are not uniform): all of them.
    """

    instances: tuple[int, ...] | None
    communicator: _backend.Communicator | None


_taking_part: ContextVar[tuple[int, ...] | None] = ContextVar("taking_part", default=None)
_communicators: dict[tuple[int, ...], _backend.Communicator] = {}


def execute_on_instances(
    instances: Iterable[int], function: Callable[..., Result], *args: Any, **kwargs: Any
) -> Result | None:
    """Call function(*args, **kwargs) on these instances only, and return what it returns.

    On all others nothing happens and None is returned, at once. Collectives inside the function
    are among these instances alone. Every instance has to pass the same ones. Inside such a
    call, another can only narrow. (PopDist's guide, Python API; nesting is our choice.)

    Raises BadUse when an instance is not there or does not take part, NotUniform.
    """
    chosen = tuple(sorted(set(instances)))
    taking_part = _taking_part.get()
    if taking_part is None:
        taking_part = tuple(range(_environment.getNumInstances()))
    if not chosen or not set(chosen) <= set(taking_part):
        raise BadUse(
            f"execute_on_instances({_show(chosen)}): here it must be some of {_show(taking_part)}"
        )
    if _environment.getInstanceIndex() not in chosen:
        return None
    token = _taking_part.set(chosen)
    try:
        return function(*args, **kwargs)
    finally:
        _taking_part.reset(token)


def group() -> Group:
    """Who takes part in a collective here. Raises NotInitialized, NotUniform."""
    world = _backend.world()
    chosen = _taking_part.get()
    if world is None:
        return Group((0,), None)
    if chosen is None:
        return Group(None, world)
    if len(chosen) == 1:
        return Group(chosen, None)
    found = _communicators.get(chosen)
    if found is None:
        found = _communicators[chosen] = _backend.subset(world, chosen)
    return Group(chosen, found)


def _free() -> None:
    for communicator in _communicators.values():
        communicator.Free()
    _communicators.clear()


def _show(instances: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, instances)) + "}"


_backend.at_end(_free)
