"""Placement: allocate-and-release pairs a second, and requests refused for lack of shape.

Both run the same closed loop. A size is drawn: 1, 2, 4, 8, 16, 32, 64 in shares of 25, 10, 20,
15, 15, 10, 5 %. Random partitions are released until what is used and the size together are at
most 85 % of the devices that are not drained, or none is left. Then the request is tried once;
a refusal counts, and the next size is drawn.

Pairs a second: in three allocations (a half, a quarter and a quarter of the machines), with
one machine in 64 drained. Three requests in four name an allocation, drawn by its devices among
those that could hold the request when empty; one in four leaves it open. Of the requests for 4
devices and more that could lie in two link domains, 3 % ask for that. The loop reaches its steady
state before it is timed, under the garbage collector's settings of a server, which starts alike;
what is drawn is drawn before that. Time is that of the process on one core, in windows; the value
is their median, and `best` is beside it. Refusals, and the loop's own work, are in the time; a
refusal is no pair.

Refused: the plain case, one allocation, nothing drained, one link domain each. A request that
is refused although enough devices are free is refused for lack of shape.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bench import Figures, figure
from podwright.fabric import simulated_ipus
from podwright.placement import Index, Placement, Request
from podwright.server._garbage_collection import start_without_gc

SIZES = (1, 2, 4, 8, 16, 32, 64)
SHARES = (25, 10, 20, 15, 15, 10, 5)
FULL = 0.85
SPANNING = 0.03
#: By the median window, up to so many devices.
PAIRS_AT_LEAST = {16_384: 150_000, 1 << 20: 75_000}
REFUSED_AT_MOST = {256: 8.7, 1024: 2.3}
SEED = 2

Draw = tuple[Request, int]


@dataclass(slots=True)
class Loop:
    """The closed loop over one index. used: devices; live: what may be released."""

    index: Index
    limit: float
    rng: random.Random
    live: list[tuple[Placement, int]] = field(default_factory=list)
    used: int = 0

    def run(self, draws: list[Draw]) -> tuple[float, int, int, int]:
        """Seconds of processor time, pairs, refusals, and those of them for lack of shape."""
        pick = iter([self.rng.random() for _ in range(8 * len(draws))]).__next__
        allocate, release = self.index.allocate, self.index.release
        live, used, limit = self.live, self.used, self.limit
        pairs = refused = shapeless = 0
        start = time.process_time()
        for request, size in draws:
            while live and used + size > limit:
                i = int(pick() * len(live))
                placement, released = live[i]
                live[i] = live[-1]
                live.pop()
                release(placement)
                used -= released
                pairs += 1
            answer = allocate(request)
            if answer.__class__ is Placement:
                live.append((answer, size))
                used += size
            else:
                refused += 1
                shapeless += answer.free >= size  # type: ignore[union-attr]
        seconds = time.process_time() - start
        self.used = used
        return seconds, pairs, refused, shapeless


def _plain(rng: random.Random, count: int) -> list[Draw]:
    requests = [Request(size) for size in SIZES]
    return [(r, r.size) for r in rng.choices(requests, SHARES, k=count)]


def _mixed(index: Index, rng: random.Random) -> Callable[[int], list[Draw]]:
    """Draws requests for an index with allocations; see the top of the file."""
    names = index.allocations
    weights = [index.size(name) for name in names]
    fits: dict[Request, tuple[list[Request], list[int]]] = {}
    for size in SIZES:
        for wide in (Request(size), Request(size, domains=2, gcds=2)):
            named = [(replace(wide, allocation=n), w) for n, w in zip(names, weights, strict=True)]
            named = [(r, w) for r, w in named if isinstance(index.plan(r), Placement)]
            if named:
                fits[wide] = [r for r, _ in named], [w for _, w in named]

    def draw(count: int) -> list[Draw]:
        out = []
        for request, size in _plain(rng, count):
            wide = Request(size, domains=2, gcds=2)
            if wide in fits and rng.random() < SPANNING:
                request = wide
            if rng.random() < 0.75:
                request = rng.choices(*fits[request])[0]
            out.append((request, size))
        return out

    return draw


def _rate(devices: int, *, settle: int, windows: int, window: int) -> Figures:
    cluster = simulated_ipus(f"pod{devices}", devices)
    machines = [machine.name for domain in cluster.domains for machine in domain.machines]
    index = Index(cluster)
    cuts = [0, len(machines) // 2, len(machines) * 3 // 4, len(machines)]
    for i, name in enumerate("abc"):
        index.define_allocation(name, machines[cuts[i] : cuts[i + 1]])
    rng = random.Random(SEED)
    draw = _mixed(index, rng)
    for machine in machines[37::64]:
        index.drain(machine)
    loop = Loop(index, FULL * index.free(), rng)
    with start_without_gc():
        loop.run(draw(settle))
    rates, refused = [], 0
    for _ in range(windows):
        seconds, pairs, refusals, _ = loop.run(draw(window))
        rates.append(pairs / seconds)
        refused += refusals
    yield figure(
        "placement",
        statistics.median(rates),
        "pairs/s",
        limit=next(limit for most, limit in PAIRS_AT_LEAST.items() if devices <= most),
        devices=devices,
        best=round(max(rates)),
        windows=windows,
        pairs_per_window=window,
        clock="processor time of one core",
        allocations=len(index.allocations),
        drained_machines=len(machines[37::64]),
        two_link_domains_percent=100 * SPANNING,
        refused_percent=round(100 * refused / windows / window, 2),
    )
    gc.unfreeze()


def _refused(devices: int, attempts: int) -> Figures:
    index = Index(simulated_ipus(f"pod{devices}", devices))
    rng = random.Random(SEED)
    loop = Loop(index, FULL * devices, rng)
    loop.run(_plain(rng, 2 * devices))
    shapeless = 0
    for _ in range(10):
        shapeless += loop.run(_plain(rng, attempts // 10))[3]
    yield figure(
        "placement-refused",
        100 * shapeless / attempts,
        "%",
        limit=REFUSED_AT_MOST.get(devices),
        devices=devices,
        attempts=attempts,
    )


def run() -> Iterator[dict[str, object]]:
    """All figures: rates first, then refusals."""
    for devices, settle in ((256, 50_000), (1024, 80_000), (16_384, 250_000)):
        yield from _rate(devices, settle=settle, windows=40, window=10_000)
    yield from _rate(1 << 20, settle=600_000, windows=9, window=10_000)
    for devices, attempts in ((64, 100_000), (256, 500_000), (1024, 500_000)):
        yield from _refused(devices, attempts)
    for devices in (4096, 16_384):
        yield from _refused(devices, 150_000)
