"""Nodes chosen side by side: the run of equal nodes that fits best, and the next, and so on."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.slurm.gpus.requests._search import Search

Weight = tuple[int, int]
_NO_WEIGHT: Weight = (0, 0)  # of a run begun by another weight: Slurm then forgets who was named


@dataclass
class _Run:
    """Nodes of one weight that stand side by side; `required` is the first that was named."""

    start: int
    weight: Weight | None = None
    nodes: list[int] = field(default_factory=list)
    end: int = 0
    required: int = -1
    cpus: int = 0
    gpus: list[int] = field(default_factory=list)


def side_by_side(search: Search, count: int) -> list[int] | None:
    """The chosen nodes, of `count` in all; None where they do not do."""
    job = search.job
    chosen: set[int] = set()
    offers: dict[int, int] = {}
    required = sorted(n for n in search.left if search.rooms[n].name in job.required)
    for n in required:
        if search.high <= 0 or len(required) > search.high + len(chosen):
            search.again = "no"
            return None
        cpus = search.look(n)
        if not search.use(n, cpus):
            search.again = "no"
            return None
        offers[n] = cpus
        chosen.add(n)
    if required:
        if search.enough:
            return _done(search, chosen)
        if search.high <= 0:
            search.again = "no"
            return None
    runs = _runs(search, count, set(required), offers)
    while runs and search.high > 0:
        best = _best(search, runs)
        if best is None or (job.contiguous and not _sufficient(search, best)):
            break
        if best.required >= 0:
            order = list(range(best.required, best.end + 1))
            order += range(best.required - 1, best.start - 1, -1)
            _add(search, [n for n in order if n in offers], offers, chosen)
        else:
            some = list(best.nodes)
            if search.nodes_left <= 1:
                some = _single(search, some, offers)
            _add(search, some, offers, chosen, last=True)
        if search.enough:
            return _done(search, chosen)
        best.nodes = []
    if search.cpus_left <= 0 and job.satisfied() and search.enough_nodes(0):
        return _done(search, chosen)
    return None


def _done(search: Search, chosen: set[int]) -> list[int]:
    found = sorted(chosen)
    search.settle(found)
    return found


def _runs(search: Search, count: int, required: set[int], offers: dict[int, int]) -> list[_Run]:
    runs: list[_Run] = []
    now = _Run(0)
    left = set(search.left)
    for n in range(count):
        here = n in left
        if here and n not in required:
            cpus = search.look(n)
            here = cpus > 0
            if here:
                offers[n] = cpus
        if not here:
            if now.nodes:
                now.end = n - 1
                runs.append(now)
            now = _Run(n + 1)
            continue
        weight = search.rooms[n].weight
        if not search.job.contiguous and now.weight is not None and weight != now.weight:
            if now.nodes:
                now.end = n - 1
                runs.append(now)
                now = _Run(n, weight=_NO_WEIGHT)
            else:
                now.required = -1
        if not now.nodes:
            now.start = n
        if n in required:
            if now.required < 0:
                now.required = n
            continue
        now.nodes.append(n)
        now.cpus += offers[n]
        now.weight = weight
        near = [one.total for one in search.rooms[n].near]
        now.gpus = [a + b for a, b in zip(now.gpus or [0] * len(near), near, strict=True)]
    if now.nodes:
        now.end = count - 1
        runs.append(now)
    return runs


def _sufficient(search: Search, run: _Run) -> bool:
    if run.cpus < search.cpus_left or not search.enough_nodes(len(run.nodes)):
        return False
    return _gpus_enough(search, run.gpus)


def _gpus_enough(search: Search, gpus: list[int]) -> bool:
    asks = search.job.asks
    return all(
        a.per_job <= have or have + more >= a.per_job
        for a, have, more in zip(asks, search.job.found, gpus or [0] * len(asks), strict=True)
    )


def _best(search: Search, runs: list[_Run]) -> _Run | None:
    """The lightest; of those the tightest that is enough, or else the largest."""
    contiguous, named = search.job.contiguous, bool(search.job.required)
    best: _Run | None = None
    enough = False
    for at, run in enumerate(runs):
        if not run.nodes or (contiguous and named and run.required < 0):
            continue
        fits = _sufficient(search, run)
        if best is None or (best.required < 0 <= run.required):
            better = True
        else:
            assert run.weight is not None
            assert best.weight is not None
            better = run.weight < best.weight
            if not better and run.weight == best.weight:
                better = (
                    (fits and not enough)
                    or (fits and run.cpus < best.cpus)
                    or (not fits and run.cpus > best.cpus)
                )
            if not better and not enough and contiguous and fits:
                better = True
        if better:
            best, enough = run, fits
        if contiguous and named and any(more.required >= 0 for more in runs[at + 1 :]):
            return None
    return best


def _single(search: Search, nodes: list[int], offers: dict[int, int]) -> list[int]:
    """The node that alone has enough, with the least to spare."""
    fitting = [
        n
        for n in nodes
        if offers[n] >= search.cpus_left
        and _gpus_enough(search, [one.total for one in search.rooms[n].near])
    ]
    return [min(fitting, key=lambda n: offers[n])] if fitting else nodes


def _add(
    search: Search,
    nodes: list[int],
    offers: dict[int, int],
    chosen: set[int],
    *,
    last: bool = False,
) -> None:
    for n in nodes:
        if search.high <= 0 or search.enough:
            return
        if n in chosen or (last and search.high == 1 and offers[n] < search.cpus_left):
            continue
        if search.use(n, offers[n]):
            chosen.add(n)
