"""The machines of one allocation by their number of free devices, and the choice of whole ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: The cost of a place, the lower the better: whole machines in its link domain, then its position.
Harm = tuple[int, tuple[int, int]]


class NodePool:
    """The machines of one allocation, filed by their number of free devices.

    free: number of free devices. full_machines: by link domain, the number of wholly free machines.
    places: (link domain, place) of each machine. devices_per_machine: devices of a machine.
    """

    def __init__(
        self, places: dict[str, tuple[int, int]], devices_per_machine: int, domain_count: int
    ) -> None:
        self.places = places
        self.free = 0
        self.full_machines = [0] * domain_count
        self.machines_by_free_count: list[set[str]] = [
            set() for _ in range(devices_per_machine + 1)
        ]
        self.machines_by_free_count[0].update(places)

    def refile(self, machine_name: str, previous_free: int, free_count: int) -> None:
        """File a machine anew that has `free_count` free devices where it had `previous_free`."""
        self.machines_by_free_count[previous_free].discard(machine_name)
        self.machines_by_free_count[free_count].add(machine_name)
        self.free += free_count - previous_free
        full_count = len(self.machines_by_free_count) - 1
        if full_count in (previous_free, free_count):
            self.full_machines[self.places[machine_name][0]] += (
                1 if free_count == full_count else -1
            )


def least_harmful_first(machine_names: set[str], harm: Callable[[str], Harm]) -> Iterator[str]:
    """Yield machines by harm, the least harmful first.

    The first one mostly has room, so the others are sorted only when it has not.
    """
    if machine_names:
        yield min(machine_names, key=harm)
        yield from sorted(machine_names, key=harm)[1:]


def spread(
    free_by_domain: dict[int, list[int]], machine_count: int, domain_count: int | None
) -> dict[int, list[int]]:
    """Choose whole machines, by link domain. Empty: there is no room.

    With `domain_count` None they are in one link domain if they fit, the fullest one that has room,
    and otherwise in as few as possible. With a number they are in that many, with an equal share in
    each.
    """
    if domain_count is not None:
        machines_per_domain = machine_count // domain_count
        fitting_domains = sorted(
            (
                domain
                for domain in free_by_domain
                if len(free_by_domain[domain]) >= machines_per_domain
            ),
            key=lambda domain: (len(free_by_domain[domain]), domain),
        )
        return (
            {
                domain: free_by_domain[domain][:machines_per_domain]
                for domain in fitting_domains[:domain_count]
            }
            if len(fitting_domains) >= domain_count
            else {}
        )
    if sum(map(len, free_by_domain.values())) < machine_count:
        return {}
    chosen_by_domain: dict[int, list[int]] = {}
    sorted_domains = sorted(
        free_by_domain, key=lambda domain: (-len(free_by_domain[domain]), domain)
    )
    machines_left, domain_index = machine_count, 0
    while len(free_by_domain[sorted_domains[domain_index]]) < machines_left:
        chosen_by_domain[sorted_domains[domain_index]] = free_by_domain[
            sorted_domains[domain_index]
        ]
        machines_left -= len(free_by_domain[sorted_domains[domain_index]])
        domain_index += 1
    last_domain = min(
        (
            domain
            for domain in sorted_domains[domain_index:]
            if len(free_by_domain[domain]) >= machines_left
        ),
        key=lambda domain: (len(free_by_domain[domain]), domain),
    )
    return {**chosen_by_domain, last_domain: free_by_domain[last_domain][:machines_left]}
