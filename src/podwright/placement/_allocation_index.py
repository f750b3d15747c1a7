"""The check that every index makes before it sets machines apart under a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence


def check_allocation(
    name: str,
    machines: Sequence[str],
    allocated: Collection[str],
    known: Callable[[str], object],
    home: Callable[[str], str],
) -> None:
    """Raise ValueError for an allocation that cannot be defined.

    allocated: the names of existing allocations. known: raises ValueError for a machine that is not
    in the cluster. home: returns the other allocation of a machine, or "".
    """
    if name in allocated:
        raise ValueError(f"there is an allocation {name} already")
    if not machines:
        raise ValueError(f"allocation {name} has no machines")
    seen: set[str] = set()
    for machine in machines:
        known(machine)
        if machine in seen:
            raise ValueError(f"machine {machine} is named twice")
        seen.add(machine)
        if other := home(machine):
            raise ValueError(f"machine {machine} is in allocation {other}")
