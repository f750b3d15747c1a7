"""GPUs taken one by one, those first that are linked to the ones that are taken already."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._node_capacity import GpuCandidates


@dataclass
class Taking:
    """GPUs of one ask on one node; a place is a socket, or -1 for those beside every one.

    `links` counts the links between two GPUs by number; empty where gres.conf names none.
    """

    near: GpuCandidates
    links: tuple[tuple[int, ...], ...]
    taken: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    linked: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def _free(self, place: int) -> list[int]:
        some = self.near.anywhere if place < 0 else self.near.gpus[place]
        return [gpu for gpu in some if gpu not in self.taken]

    def take(self, place: int, count: int, *, sort: bool = False) -> int:
        """Take up to `count` more, in the order of their numbers; how many were.

        sort: after each the rest is sorted by links to those taken, fewest first.
        """
        if not (sort and self.links):
            some = self._free(place)[: max(count, 0)]
            for gpu in some:
                self._count(gpu)
            return len(some)
        return self._sorted(place, count)

    def _count(self, gpu: int) -> None:
        self.taken.add(gpu)
        for other, n in enumerate(self.links[gpu] if self.links else ()):
            if other != gpu:
                self.linked[other] = self.linked.get(other, 0) + n

    def _sorted(self, place: int, count: int) -> int:
        self.order = self.order or list(range(len(self.links)))
        got = at = 0
        while at < len(self.order) and got < count:
            gpu = self.order[at]
            at += 1
            if gpu in self._free(place):
                self._count(gpu)
                got += 1
                self.order.sort(key=lambda g: self.linked.get(g, 0))
                at = 1  # Slurm starts again at the second
        return got

    def scores(self) -> dict[int, int]:
        """Links of each GPU to those taken, scaled to 4 at most."""
        return _scaled(dict(self.linked))

    def all_scores(self) -> dict[int, int]:
        """Links of each GPU to all others, scaled to 4 at most."""
        found: dict[int, int] = {}
        for gpu, row in enumerate(self.links):
            for other, n in enumerate(row):
                if other != gpu:
                    found[other] = found.get(other, 0) + n
        return _scaled(found)

    def by_score(self, places: list[int], count: int, scores: dict[int, int]) -> int:
        """Take up to `count` more of several places, the best linked first; how many were."""
        got = 0
        for level in range(max(scores.values(), default=0), -1, -1):
            for place in places:
                for gpu in self._free(place):
                    if got < count and (not self.links or scores.get(gpu, 0) >= level):
                        self.taken.add(gpu)
                        got += 1
        return got

    def level(self, place: int, count: int, scores: dict[int, int]) -> int:
        """Take up to `count` more of one place."""
        some = self._free(place)[: max(count, 0)]
        self.taken.update(some)
        return len(some)

    def fill(self, places: list[int], count: int, *, sort: bool) -> int:
        """Take what is still missing: those best linked to the first that is taken.

        sort: place by place, and after each by links to all that are taken.
        """
        if not self.links or sort:
            for gpu in list(self.taken) if self.links else ():
                self._count(gpu)
            self.order = sorted(range(len(self.links)), key=lambda g: self.linked.get(g, 0))
            got = 0
            for place in places:
                got += self.take(place, count - got, sort=True)
            return got
        first = min(self.taken, default=-1)
        row = self.links[first] if first >= 0 else ()
        return self.by_score(places, count, dict(enumerate(row)))


def _scaled(found: dict[int, int]) -> dict[int, int]:
    best = max(found.values(), default=0)
    by = (best + 3) // 4 if best > 4 else 1
    return {gpu: _divide(n, by) for gpu, n in found.items()}


def _divide(n: int, by: int) -> int:
    return int(n / by)  # towards zero, as C does


def best_of(taking: Taking, most: int) -> None:
    """Keep `most` of those taken: the pair with most links, and what is best linked to it."""
    links, taken = taking.links, sorted(taking.taken)
    best, centre = -1, -1
    for at, one in enumerate(taken):
        for other in taken[at + 1 :]:
            if links[one][other] > best:
                best, centre = links[one][other], one
    while len(taking.taken) > most and best != -1:
        rest = [gpu for gpu in sorted(taking.taken) if gpu != centre]
        if not rest:
            return
        taking.taken.discard(min(rest, key=lambda g: (links[centre][g], g)))
