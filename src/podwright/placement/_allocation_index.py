"""What every index asks before it sets machines apart under a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence


def check_allocation(
    name: str,
    machines: Sequence[str],
    taken: Collection[str],
    known: Callable[[str], object],
    home: Callable[[str], str],
) -> None:
    """Raises ValueError for an allocation that cannot be.

    taken: the names of the others. known: raises ValueError for a machine that is not in the
    cluster. home: the other allocation that a machine is in, or "".
    """
    if name in taken:
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
