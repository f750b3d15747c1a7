"""The check that every index makes before it sets machines apart under a name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence


def check_allocation(
    name: str,
    machines: Sequence[str],
    allocated: Collection[str],
    check_machine: Callable[[str], object],
    allocation_of: Callable[[str], str],
) -> None:
    """Raise ValueError for an allocation that cannot be defined.

    allocated: the names of existing allocations. check_machine: raises ValueError for a machine
    that is not in the cluster. allocation_of: returns the other allocation of a machine, or "".
    """
    if name in allocated:
        raise ValueError(f"there is an allocation {name} already")
    if not machines:
        raise ValueError(f"allocation {name} has no machines")
    seen_machines: set[str] = set()
    for machine in machines:
        check_machine(machine)
        if machine in seen_machines:
            raise ValueError(f"machine {machine} is named twice")
        seen_machines.add(machine)
        if other_allocation := allocation_of(machine):
            raise ValueError(f"machine {machine} is in allocation {other_allocation}")
