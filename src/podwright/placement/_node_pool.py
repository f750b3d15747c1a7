"""The machines of one allocation by their number of free devices, and the choice of whole ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: The cost of a place, the lower the better: whole machines in its link domain, then its position.
Harm = tuple[int, tuple[int, int]]


class NodePool:
    """The machines of one allocation, filed by their number of free devices.

    free: number of free devices. full_machines: by link domain, the number of wholly free machines.
    places: (link domain, place) of each machine. per: devices of a machine.
    """

    def __init__(self, places: dict[str, tuple[int, int]], per: int, domains: int) -> None:
        self.places = places
        self.free = 0
        self.full_machines = [0] * domains
        self.filed: list[set[str]] = [set() for _ in range(per + 1)]
        self.filed[0].update(places)

    def refile(self, name: str, before: int, now: int) -> None:
        """File a machine anew that has `now` free devices where it had `before`."""
        self.filed[before].discard(name)
        self.filed[now].add(name)
        self.free += now - before
        all_free = len(self.filed) - 1
        if all_free in (before, now):
            self.full_machines[self.places[name][0]] += 1 if now == all_free else -1


def best_first(names: set[str], harm: Callable[[str], Harm]) -> Iterator[str]:
    """Yield machines by harm, the least harmful first.

    The first one mostly has room, so the others are sorted only when it has not.
    """
    if names:
        yield min(names, key=harm)
        yield from sorted(names, key=harm)[1:]


def spread(free: dict[int, list[int]], machines: int, domains: int | None) -> dict[int, list[int]]:
    """Choose whole machines, by link domain. Empty: there is no room.

    With `domains` None they are in one link domain if they fit, the fullest one that has room, and
    otherwise in as few as possible. With a number they are in that many, with an equal share in
    each.
    """
    if domains is not None:
        share = machines // domains
        fit = sorted(
            (domain for domain in free if len(free[domain]) >= share),
            key=lambda domain: (len(free[domain]), domain),
        )
        return (
            {domain: free[domain][:share] for domain in fit[:domains]}
            if len(fit) >= domains
            else {}
        )
    if sum(map(len, free.values())) < machines:
        return {}
    chosen: dict[int, list[int]] = {}
    rest = sorted(free, key=lambda domain: (-len(free[domain]), domain))
    left, count_index = machines, 0
    while len(free[rest[count_index]]) < left:
        chosen[rest[count_index]] = free[rest[count_index]]
        left -= len(free[rest[count_index]])
        count_index += 1
    last = min(
        (domain for domain in rest[count_index:] if len(free[domain]) >= left),
        key=lambda domain: (len(free[domain]), domain),
    )
    return {**chosen, last: free[last][:left]}
