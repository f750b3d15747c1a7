"""Every option of `create partition` in every combination, against the written rules.

The rules are repeated here, from the V-IPU guides and our list of choices, and not from the
controller's code. An allowed combination is created, shown as it was requested, and removed. A
forbidden one is refused with the rule, and changes nothing. Sizes, GCDs, replicas, link domains,
reconfigurable or not, and devices by name are tested in all combinations. Options that do not
affect each other (routing, sync, resets, names of places) are tested pairwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from podwright.errors import InvalidRequest
from podwright.fabric import (
    IPU,
    Cluster,
    ClusterTopology,
    DomainTopology,
    LinkDomain,
    Machine,
)
from podwright.wire import GatewayRouting, PartitionInfo, ReadyState, Routing, SyncType
from tests.controller.test_partitions import complete
from tests.controller.world import ALL, ROOT, VirtualLoop, World

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
SIZES = (1, 2, 3, 4, 8, 16, 24, 32, 64, 96, 128, 192, 256)
GCDS = (0, 1, 2, 3, 4, 16, 64)
REPLICAS = (0, 1, 2, 4, 64)
ILDS = (0, 1, 2, 3, 4)


def pod(name: str, domains: int, machines: int, inside: str, between: str) -> Cluster:
    return Cluster(
        name=name,
        family=IPU,
        domains=tuple(
            LinkDomain(f"ild{d}", tuple(Machine(f"{name}-{d}-{m}") for m in range(machines)))
            for d in range(domains)
        ),
        topology=ClusterTopology(between),
        domain_topology=DomainTopology(inside),
        simulated=True,
    )


CLUSTERS = [
    pod("one-mesh-16", 1, 4, "mesh", "none"),
    pod("one-torus-64", 1, 16, "torus", "none"),
    pod("two-torus-128-looped", 2, 16, "torus", "looped"),
    pod("four-mesh-64-switched", 4, 4, "mesh", "switched"),
    pod("two-mesh-32-apart", 2, 4, "mesh", "none"),
]


class Asked(NamedTuple):
    """A combination. named: devices are given one by one. shifted: they do not start where a block
    may.
    """

    size: int
    gcds: int
    replicas: int
    ilds: int
    reconfigurable: bool
    named: str
    routing: Routing
    gw: GatewayRouting
    sync: SyncType
    auto_reset: bool
    relocatable: bool
    where: str


def combinations(cluster: Cluster) -> Iterator[Asked]:
    """Yield all shapes, each with the next values of the other options.

    Valid shapes are also combined with the next values that do not conflict. Reduced: only a tenth
    of the invalid shapes.
    """
    rest: list[Any] = list(
        product(Routing, GatewayRouting, SyncType, (True, False), (False, True), _WHERE)
    )
    plain: Any = (Routing.DEFAULT, GatewayRouting.DEFAULT, SyncType.DEFAULT, True, False, "")
    at = seen = 0
    for shape in product(SIZES, GCDS, REPLICAS, ILDS, (False, True)):
        if shape[0] > 2 * cluster.size:
            continue
        divides = shape[0] % max(1, shape[3]) == 0
        for named in ("", "aligned", "shifted") if shape[0] <= 8 and divides else ("",):
            seen += 1
            can = not illegal(Asked(*shape, named, *plain), cluster)
            if not (can or SOAK or seen % 10 == 0):
                continue
            at += _STEP
            yield Asked(*shape, named, *rest[at % len(rest)])
            for _ in range(4 if SOAK else 1) if can else ():
                at += _STEP
                while illegal(asked := Asked(*shape, named, *rest[at % len(rest)]), cluster):
                    at += _STEP
                yield asked


_STEP = 251  #: coprime to the number of the rest: all of them come, far apart
_WHERE = ("", "cluster", "allocation", "both")


def devices(asked: Asked) -> list[tuple[int, int]]:
    if not asked.named:
        return []
    parts = max(1, asked.ilds)
    first = asked.size // parts if asked.named == "aligned" else 1
    each = asked.size // parts
    return [(domain, first + at) for domain in range(parts) for at in range(each)]


def illegal(asked: Asked, cluster: Cluster) -> set[str]:
    """Return the rules that a combination breaks, each as a word of its refusal."""
    size, gcds, reps, ilds = asked.size, asked.gcds, asked.replicas, asked.ilds
    domain, there = cluster.domain_size(0), len(cluster.domains)
    broken: set[str] = set()

    def rule(holds: bool, words: str) -> None:
        if not holds:
            broken.add(words)

    # Sizes: V-IPU guide, terminology; 32 is our reading.
    rule(size in (1, 2, 4, 8, 16, 32, 64) or size % 64 == 0, "a partition has")
    rule(size <= cluster.size, "link domains?, not|has no aligned block|has no device")
    rule(not gcds or size % gcds == 0, "do not divide into|do not divide evenly")
    rule(not ilds or size % ilds == 0, "do not divide into|do not divide over")
    rule(size > 2 or ilds <= 1, "lies in one machine")
    rule(not ilds or ilds <= there, "link domains?, not|has no link domain|no device")
    rule(not ilds or ilds & (ilds - 1) == 0 or size > 64, "do not divide over")
    rule(not ilds or size <= 64 or ilds == size // 64, "take whole link domains")
    # GCDs: in one link domain each, of 1 to 64 IPUs.
    spread = ilds or (1 if size <= domain else -(-size // domain))
    pieces = gcds or spread
    rule(pieces % spread == 0, "a GCD lies in one link domain|has no aligned block")
    if size % pieces == 0:
        part = size // pieces
        rule(part in (1, 2, 4, 8, 16, 32, 64), "a GCD lies in one link domain and has")
    if size % spread == 0:
        rule(size // spread <= domain, "has no aligned block|take whole|has no device")
    rule(spread == 1 or cluster.topology is not ClusterTopology.NONE, "no links join|has no")
    # Replicas: over all GCDs, evenly.
    total = reps or gcds or 1
    rule(total % (gcds or 1) == 0 and size % total == 0, "replicas do not divide")
    # Reconfigurable: at most 64 devices, one GCD, one replica, c2-compatible.
    if asked.reconfigurable:
        rule(size <= 64, "at most 64")
        rule(gcds <= 1 and reps <= 1 and ilds <= 1 and size <= domain, "one GCD with one|has no")
        rule(asked.sync in (SyncType.DEFAULT, SyncType.GS2_DEFAULT), "GS2_DEFAULT")
    rule(asked.sync is not SyncType.GS2_INDEPENDENT_RAILS, "not supported")
    # Routing: loops need whole torus domains; between domains, links of that kind.
    loops = cluster.domain_topology is DomainTopology.TORUS and size == spread * domain
    rule(loops or asked.routing not in (Routing.RINGSWNC, Routing.BTNC), "needs loop links")
    needs = {GatewayRouting.RING: "looped", GatewayRouting.SWRING: "switched"}.get(asked.gw)
    rule(needs in (None, cluster.topology.value), "gateway routing")
    # Devices by name: an aligned block in each link domain, and they stay where they are.
    if asked.named:
        rule(not asked.relocatable, "does not move")
        rule(asked.named == "aligned" or len(devices(asked)) == spread, "one aligned block")
        rule(max(offset for _, offset in devices(asked)) < domain, "has no device")
    return broken


def spec_of(asked: Asked, cluster: Cluster) -> dict[str, Any]:
    return {
        "size": asked.size,
        "num_gcds": asked.gcds,
        "num_replicas": asked.replicas,
        "num_ilds": asked.ilds,
        "reconfigurable": asked.reconfigurable,
        "devices": devices(asked),
        "routing": asked.routing,
        "gw_routing": asked.gw,
        "sync_type": asked.sync,
        "auto_reset": asked.auto_reset,
        "relocatable": asked.relocatable,
        "cluster": cluster.name if asked.where in ("cluster", "both") else "",
        "allocation": cluster.name if asked.where in ("allocation", "both") else "",
    }


def check_shown(asked: Asked, cluster: Cluster, info: PartitionInfo) -> None:
    """Check that the partition is as requested, and that open options have the documented
    default.
    """
    size, domain = asked.size, cluster.domain_size(0)
    assert info.ready_state is ReadyState.ACTIVE
    assert (info.size, info.cluster, info.allocation) == (size, cluster.name, cluster.name)
    spread = asked.ilds or (1 if size <= domain else -(-size // domain))
    assert info.num_ilds == spread == len(info.ilds)
    assert info.num_gcds == (asked.gcds or spread) == len(info.gcds)
    assert info.num_replicas == (asked.replicas or info.num_gcds)
    assert (info.auto_reset, info.relocatable) == (asked.auto_reset, asked.relocatable)
    assert info.reconfigurable == asked.reconfigurable
    assert info.gw_routing is asked.gw
    if asked.sync is not SyncType.DEFAULT:
        assert info.sync_type is asked.sync
    else:
        default = SyncType.GS2_DEFAULT if asked.reconfigurable else SyncType.POD_NATIVE_DEFAULT
        assert info.sync_type is default
    whole = cluster.domain_topology is DomainTopology.TORUS and size == spread * domain
    if asked.routing is not Routing.DEFAULT:
        assert info.routing is asked.routing
    else:
        assert info.routing is (Routing.RINGSWNC if whole and domain == 64 else Routing.DNC)
    flat = [(ref.domain, ref.offset) for gcd in info.gcds for ref in gcd]
    assert len(set(flat)) == size
    if asked.named:
        assert sorted(flat) == sorted(devices(asked))
    for gcd in info.gcds:
        assert len(gcd) == size // info.num_gcds
        assert len({ref.domain for ref in gcd}) == 1
        offsets = [ref.offset for ref in gcd]
        assert offsets == list(range(offsets[0], offsets[0] + len(gcd)))
        assert offsets[0] % len(gcd) == 0
    part = size // spread
    assert len({min(o for d, o in flat if d == one) for one in info.ilds}) == 1
    assert min(o for _, o in flat) % part == 0


async def walk(cluster: Cluster) -> tuple[int, int]:
    """Return how many partitions were created, and how many refused."""
    world = World([cluster])
    await world.start()
    made = refused = 0
    for asked in combinations(cluster):
        broken = illegal(asked, cluster)
        info = error = None
        try:
            info = await world.create("p1", **spec_of(asked, cluster))
        except InvalidRequest as refusal:
            error = refusal
        if info is None:
            assert error is not None
            complete(error)
            words = [word for rule in broken for word in rule.split("|")]
            assert any(word in error.problem for word in words), (asked, error.message, broken)
            refused += 1
        else:
            assert not broken, (asked, broken)
            check_shown(asked, cluster, info)
            assert await world.get("p1") == info
            await world.remove("p1")
            made += 1
        assert (await world.controller.list_clusters(ROOT, ALL)).clusters[0].free == cluster.size
    await world.check()
    await world.stop()
    return made, refused


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)
def test_every_combination(cluster: Cluster) -> None:
    loop = VirtualLoop()
    try:
        made, refused = loop.run_until_complete(walk(cluster))
    finally:
        loop.close()
    print(f"\n{cluster.name}: {made} created and removed, {refused} refused")
    assert made > 200
    assert refused > 300
