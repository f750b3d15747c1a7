"""The machines of one allocation by what is free of them, and how whole ones are picked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: What a place costs: the less the better. Whole machines beside it, and where it is.
Harm = tuple[int, tuple[int, int]]


class NodePool:
    """The machines of one allocation, filed under how many of their devices are free.

    free: devices. whole: by link domain, machines that are wholly free. places: of its machines.
    """

    def __init__(self, places: dict[str, tuple[int, int]], per: int, domains: int) -> None:
        self.places = places
        self.free = 0
        self.whole = [0] * domains
        self.filed: list[set[str]] = [set() for _ in range(per + 1)]
        self.filed[0].update(places)

    def refile(self, name: str, before: int, now: int) -> None:
        """A machine has `now` free devices where it had `before`."""
        self.filed[before].discard(name)
        self.filed[now].add(name)
        self.free += now - before
        full = len(self.filed) - 1
        if full in (before, now):
            self.whole[self.places[name][0]] += 1 if now == full else -1


def best_first(names: set[str], harm: Callable[[str], Harm]) -> Iterator[str]:
    """The first mostly has room; only where its free devices lie apart are the others sorted."""
    if names:
        yield min(names, key=harm)
        yield from sorted(names, key=harm)[1:]


def spread(free: dict[int, list[int]], machines: int, domains: int | None) -> dict[int, list[int]]:
    """Whole machines by link domain: in one where they fit, the fullest that does; else over as
    few as can be, or over as many as are asked for, alike in each. Empty: there is no room."""
    if domains is not None:
        share = machines // domains
        fit = sorted((d for d in free if len(free[d]) >= share), key=lambda d: (len(free[d]), d))
        return {d: free[d][:share] for d in fit[:domains]} if len(fit) >= domains else {}
    if sum(map(len, free.values())) < machines:
        return {}
    chosen: dict[int, list[int]] = {}
    rest = sorted(free, key=lambda d: (-len(free[d]), d))
    left, at = machines, 0
    while len(free[rest[at]]) < left:
        chosen[rest[at]] = free[rest[at]]
        left -= len(free[rest[at]])
        at += 1
    last = min((d for d in rest[at:] if len(free[d]) >= left), key=lambda d: (len(free[d]), d))
    return {**chosen, last: free[last][:left]}
