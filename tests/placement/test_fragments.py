"""How many more of each size fit, compared with placing them one after another."""

from __future__ import annotations

import random

import pytest

from podwright.fabric import HGX8, IPU, NVL72, Cluster, Family, LinkDomain, Machine
from podwright.placement import Placement, Request, index_of
from podwright.placement.fragmentation import fits


@pytest.mark.parametrize("family", [IPU, HGX8, NVL72])
@pytest.mark.parametrize("seed", range(8))
def test_so_many_can_be_placed_and_no_more(family: Family, seed: int) -> None:
    dice = random.Random(seed)
    per = family.devices_per_machine
    machines = family.max_domain_devices // per
    domains = tuple(
        LinkDomain(f"d{d}", tuple(Machine(f"m{d}-{m}") for m in range(machines))) for d in range(2)
    )
    cluster = Cluster(name="c", family=family, domains=domains)
    index = index_of(cluster)
    for _ in range(dice.randrange(24)):
        place = index.allocate(Request(size=1 << dice.randrange(3)))
        if isinstance(place, Placement) and dice.random() < 0.4:
            index.release(place)
    blocks = [block for held in index.placements() for block in held.blocks]
    taken = {(b.domain, b.offset + i) for b in blocks for i in range(b.size)}
    free = [
        [(d, at) not in taken for at in range(cluster.domain_size(d))] for d in range(len(domains))
    ]
    for size, count, useless in fits(family, free):
        if size > machines * per:
            continue
        gcds = max(1, size // per) if family is NVL72 else 1
        asked, placed = Request(size=size, domains=1, gcds=gcds), []
        while isinstance(place := index.allocate(asked), Placement):
            placed.append(place)
        for place in placed:
            index.release(place)
        assert (size, len(placed)) == (size, count)
        assert useless == sum(map(sum, free)) - count * size
