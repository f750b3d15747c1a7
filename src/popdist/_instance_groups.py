"""Which instances take part in collectives now, and their communicator.

Entering a scope costs nothing. The communicator is made at the first collective inside it, which
involves only the instances that take part. It is kept, since training loops come back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from popdist import _backend, _environment
from popdist._errors import BadUse

Result = TypeVar("Result")


class Group(NamedTuple):
    """The instances that take part, in their order, and their communicator (None for a single one).

    instances: None means all of them, where they cannot be counted (replicas are not uniform).
    """

    instances: tuple[int, ...] | None
    communicator: _backend.Communicator | None


_participant_ranks: ContextVar[tuple[int, ...] | None] = ContextVar("taking_part", default=None)
_communicators: dict[tuple[int, ...], _backend.Communicator] = {}


def execute_on_instances(
    instances: Iterable[int], function: Callable[..., Result], *args: Any, **kwargs: Any
) -> Result | None:
    """Call function(*args, **kwargs) on these instances only, and return what it returns.

    On all other instances nothing happens, and None is returned at once. Collectives inside the
    function are among these instances alone. Every instance must pass the same set. A nested call
    can only narrow the set. (PopDist's guide, Python API; nesting is our choice.)

    Raises BadUse when an instance does not exist or takes no part, and NotUniform.

    >>> popdist.execute_on_instances({0}, max, 3, 4)
    4
    """
    chosen_instances = tuple(sorted(set(instances)))
    taking_part = _participant_ranks.get()
    if taking_part is None:
        taking_part = tuple(range(_environment.getNumInstances()))
    if not chosen_instances or not set(chosen_instances) <= set(taking_part):
        raise BadUse(
            f"execute_on_instances({_instances_text(chosen_instances)}): here it must be some of "
            f"{_instances_text(taking_part)}"
        )
    if _environment.getInstanceIndex() not in chosen_instances:
        return None
    scope_token = _participant_ranks.set(chosen_instances)
    try:
        return function(*args, **kwargs)
    finally:
        _participant_ranks.reset(scope_token)


def group() -> Group:
    """Return who takes part in a collective called now. Raises NotInitialized, NotUniform."""
    world = _backend.world()
    instances = _participant_ranks.get()
    if world is None:
        return Group((0,), None)
    if instances is None:
        return Group(None, world)
    if len(instances) == 1:
        return Group(instances, None)
    communicator = _communicators.get(instances)
    if communicator is None:
        communicator = _communicators[instances] = _backend.subset(world, instances)
    return Group(instances, communicator)


def _free_communicators() -> None:
    for communicator in _communicators.values():
        communicator.Free()
    _communicators.clear()


def _instances_text(instances: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, instances)) + "}"


_backend.at_end(_free_communicators)
