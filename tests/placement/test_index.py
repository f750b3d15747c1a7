"""What placement's door promises, case by case."""

from __future__ import annotations

import pytest

from podwright.fabric import IPU, Cluster, ClusterTopology, LinkDomain, Machine, preset
from podwright.fabric import simulated_ipus as ipus
from podwright.placement import Block, Index, Placement, Refusal, Request


def placed(index: Index, request: Request) -> Placement:
    answer = index.allocate(request)
    assert isinstance(answer, Placement), answer
    return answer


def refused(index: Index, request: Request) -> Refusal:
    answer = index.plan(request)
    assert isinstance(answer, Refusal), answer
    return answer


def racks(count: int, topology: ClusterTopology) -> Cluster:
    domains = tuple(
        LinkDomain(f"ild{d}", tuple(Machine(f"ag{d * 16 + i + 1}") for i in range(16)))
        for d in range(count)
    )
    return Cluster("row", IPU, domains, topology=topology)


def test_find_is_plan_without_reasons() -> None:
    index = Index(preset("pod16"))
    request = Request(16)
    assert index.find(request) == index.plan(request)
    index.allocate(Request(1))
    assert index.find(request) is None
    assert isinstance(index.plan(request), Refusal)


def test_popruns_own_example_lies_in_two_link_domains() -> None:
    index = Index(preset("pod128"))
    placement = placed(index, Request(32, domains=2, gcds=2))
    assert placement.blocks == (Block(0, 0, 16), Block(1, 0, 16))
    assert placement.gcds == placement.blocks


def test_gcds_split_blocks_in_routing_order() -> None:
    placement = placed(Index(preset("pod16")), Request(8, gcds=4))
    assert placement.gcds == tuple(Block(0, at, 2) for at in (0, 2, 4, 6))


def test_whole_link_domains_follow_one_another_round_the_loop() -> None:
    index = Index(racks(4, ClusterTopology.LOOPED))
    placed(index, Request(0, blocks=(Block(1, 0, 64),)))
    placed(index, Request(0, blocks=(Block(2, 0, 64),)))
    assert placed(index, Request(128, gcds=2)).blocks == (Block(3, 0, 64), Block(0, 0, 64))


def test_link_domains_apart_do_only_where_they_are_switched() -> None:
    answers = {}
    for topology in ClusterTopology:
        index = Index(racks(4, topology))
        placed(index, Request(64, blocks=(Block(1, 0, 64),)))
        placed(index, Request(64, blocks=(Block(3, 0, 64),)))
        answers[topology] = index.plan(Request(128, gcds=2))
    switched = answers[ClusterTopology.SWITCHED]
    assert isinstance(switched, Placement)
    assert switched.blocks == (Block(0, 0, 64), Block(2, 0, 64))
    looped, none = answers[ClusterTopology.LOOPED], answers[ClusterTopology.NONE]
    assert isinstance(looped, Refusal)
    assert not looped.never
    assert isinstance(none, Refusal)
    assert none.never


def test_a_block_goes_where_it_breaks_nothing_whole() -> None:
    index = Index(preset("pod128"))
    placed(index, Request(2))
    placed(index, Request(32))
    assert placed(index, Request(2)).blocks == (Block(0, 2, 2),)
    assert placed(index, Request(4)).blocks == (Block(0, 4, 4),)
    assert index.plan(Request(64)) == Placement("pod128", (Block(1, 0, 64),), (Block(1, 0, 64),))


def test_small_partitions_go_to_link_domains_that_cannot_be_whole() -> None:
    index = Index(preset("pod128"))
    index.drain("ag32")
    assert placed(index, Request(4)).blocks[0].domain == 1
    index.resume("ag32")


def test_a_drained_machine_spoils_its_whole_link_domain() -> None:
    index = Index(preset("pod64"))
    index.drain("ag16")
    refusal = refused(index, Request(64))
    assert (refusal.never, refusal.free, refusal.largest) == (False, 60, 32)
    index.resume("ag16")
    assert placed(index, Request(64)).size == 64


def test_what_is_on_a_drained_machine_stays_and_its_devices_do_not_return() -> None:
    index = Index(preset("pod4"))
    placement = placed(index, Request(4))
    index.drain("ag1")
    assert refused(index, Request(1)).free == 0
    index.release(placement)
    assert refused(index, Request(1)).free == 0
    index.resume("ag1")
    assert index.free() == 4


def test_a_drain_before_its_allocation_holds() -> None:
    index = Index(preset("pod16"))
    index.drain("ag1")
    index.define_allocation("a", ["ag1", "ag2"])
    assert index.free("a") == 4
    assert placed(index, Request(4)).blocks == (Block(0, 4, 4),)


def test_partitions_never_cross_allocations() -> None:
    index = Index(preset("pod16"))
    index.define_allocation("a", ["ag1"])
    index.define_allocation("b", ["ag2"])
    assert refused(index, Request(8)).never
    assert refused(index, Request(0, blocks=(Block(0, 0, 8),))).never
    assert placed(index, Request(4, allocation="b")).blocks == (Block(0, 4, 4),)
    assert placed(index, Request(4)).allocation == "a"
    assert index.size() == 8
    assert index.size("a") == 4


@pytest.mark.parametrize(
    ("name", "machines", "problem"),
    [
        ("b", ["ag9"], "no machine ag9"),
        ("b", ["ag2", "ag2"], "named twice"),
        ("b", ["ag1"], "in allocation a"),
        ("a", ["ag2"], "already"),
        ("b", [], "no machines"),
    ],
)
def test_a_bad_allocation_changes_nothing(name: str, machines: list[str], problem: str) -> None:
    index = Index(preset("pod16"))
    index.define_allocation("a", ["ag1"])
    with pytest.raises(ValueError, match=problem):
        index.define_allocation(name, machines)
    assert index.allocations == ("a",)
    assert index.size() == 4


def test_an_allocation_in_use_cannot_be_removed() -> None:
    index = Index(preset("pod16"))
    index.define_allocation("a", ["ag1"])
    placement = placed(index, Request(1))
    with pytest.raises(ValueError, match="has partitions"):
        index.remove_allocation("a")
    index.release(placement)
    index.remove_allocation("a")
    assert refused(index, Request(1)).rule == "there is no allocation in cluster pod16"


def test_only_what_is_held_can_be_released_and_only_once() -> None:
    index = Index(preset("pod16"))
    placement = placed(index, Request(8))
    part = Placement("pod16", (Block(0, 0, 4),), (Block(0, 0, 4),))
    with pytest.raises(ValueError, match="not held"):
        index.release(part)
    equal = Placement(placement.allocation, placement.blocks, placement.gcds)
    index.release(equal)
    with pytest.raises(ValueError, match="not held"):
        index.release(placement)
    assert index.free() == 16


@pytest.mark.parametrize(
    ("placement", "problem"),
    [
        (Placement("nobody", (Block(0, 0, 4),), (Block(0, 0, 4),)), "no allocation nobody"),
        (Placement("pod16", (Block(0, 0, 2),), (Block(0, 0, 2),)), "taken"),
        (Placement("pod16", (Block(0, 4, 4),), (Block(0, 4, 2),)), "routing order"),
        (Placement("pod16", (Block(0, 6, 4),), (Block(0, 6, 4),)), "aligned"),
        (Placement("pod16", (Block(1, 0, 4),), (Block(1, 0, 4),)), "no link domain 1"),
        (Placement("pod16", (Block(0, 16, 4),), (Block(0, 16, 4),)), "no devices 16 to 19"),
    ],
)
def test_a_record_that_does_not_fit_is_not_taken(placement: Placement, problem: str) -> None:
    index = Index(preset("pod16"))
    placed(index, Request(1))
    with pytest.raises(ValueError, match=problem):
        index.take(placement)
    assert index.free() == 15


@pytest.mark.parametrize(
    ("request_", "rule", "nearest"),
    [
        (Request(0), "at least one device", (1,)),
        (Request(-4), "at least one device", (1,)),
        (Request(3), "1, 2, 4, 8, 16, 32, 64 IPUs, or a multiple of 64", (2, 4)),
        (Request(100), "or a multiple of 64", (64,)),
        (Request(100, gcds=4), "or a multiple of 64", (64, 128)),
        (Request(512, gcds=8), "has 2 link domains, not 8", (128,)),
        (Request(4, gcds=0), "at least one GCD", ()),
        (Request(4, gcds=3), "do not divide evenly into 3 GCDs", ()),
        (Request(128), "128 in 1 make 128", ()),
        (Request(8, domains=0), "at least one link domain", ()),
        (Request(2, domains=2, gcds=2), "a partition of 2 lies in one machine", ()),
        (Request(8, domains=3, gcds=1), "do not divide over 3 link domains", ()),
        (Request(8, domains=2, gcds=1), "1 do not divide over 2", ()),
        (Request(128, domains=1, gcds=2), "take whole link domains: 128 take 2", ()),
        (Request(8, domains=4, gcds=4), "has 2 link domains, not 4", ()),
        (Request(4, allocation="x"), "no allocation x in cluster pod128", ()),
        (Request(4, blocks=(Block(0, 2, 4),)), "one aligned block of 4", ()),
        (Request(8, blocks=(Block(0, 0, 4), Block(1, 4, 4)), gcds=2), "same offset", ()),
        (Request(8, blocks=(Block(0, 0, 4),)), "4 devices are named where 8", ()),
        (Request(0, blocks=(Block(0, 0, 4), Block(0, 2, 2))), "named twice", ()),
        (Request(0, blocks=(Block(7, 0, 4),)), "no link domain 7", ()),
        (Request(0, blocks=(Block(0, 0, 4),), domains=2), "lie in 1 link domain, not 2", ()),
        (Request(0, blocks=()), "at least one device", ()),
    ],
)
def test_what_can_never_be_says_which_rule(
    request_: Request, rule: str, nearest: tuple[int, ...]
) -> None:
    refusal = refused(Index(preset("pod128")), request_)
    assert refusal.never
    assert rule in refusal.rule
    assert refusal.nearest_sizes == nearest


def test_an_allocation_that_is_too_small_says_what_it_could_hold() -> None:
    refusal = refused(Index(preset("pod16")), Request(32))
    assert refusal.never
    assert refusal.nearest_sizes == (16,)
    assert "pod16" in refusal.rule


def test_a_refusal_for_lack_of_shape_tells_it_from_lack_of_devices() -> None:
    index = Index(preset("pod4"))
    pairs = [placed(index, Request(1)) for _ in range(4)]
    index.release(pairs[0])
    index.release(pairs[2])
    assert refused(index, Request(2)) == Refusal(
        never=False, rule="2 IPUs are free, but no aligned block of 2 is", free=2, largest=1
    )
    assert refused(index, Request(4)).rule == "4 IPUs are asked for and 2 are free"


def test_named_devices_that_are_taken_or_drained_are_refused_as_such() -> None:
    index = Index(preset("pod16"))
    placed(index, Request(2))
    index.drain("ag2")
    assert "taken" in refused(index, Request(0, blocks=(Block(0, 0, 4),))).rule
    assert "drained" in refused(index, Request(0, blocks=(Block(0, 4, 4),))).rule


def test_named_blocks_that_touch_are_one() -> None:
    placement = placed(Index(preset("pod16")), Request(4, blocks=(Block(0, 6, 2), Block(0, 4, 2))))
    assert placement.blocks == (Block(0, 4, 4),)


def test_a_thousand_link_domains_place_over_several() -> None:
    index = Index(ipus("hall", 65_536))
    first = placed(index, Request(128, gcds=128))
    index.drain("ag100")
    second = placed(index, Request(64 * 512, gcds=512))
    assert first.blocks == (Block(0, 0, 64), Block(1, 0, 64))
    assert second.blocks[0] == Block(7, 0, 64)
    index.release(first)
    index.release(second)
    assert index.free() == index.size() - 4


def test_the_largest_cluster_of_small_requests_fills_to_the_last_device() -> None:
    index = Index(preset("pod256"))
    everything = [placed(index, Request(1)) for _ in range(256)]
    assert index.free() == 0
    assert refused(index, Request(1)).largest == 0
    for placement in everything:
        index.release(placement)
    assert placed(index, Request(256, gcds=4)).size == 256


def test_a_plan_can_be_taken_once() -> None:
    index = Index(preset("pod16"))
    plan = index.plan(Request(8))
    assert isinstance(plan, Placement)
    assert index.free() == 16
    index.take(plan)
    assert index.free() == 8
    with pytest.raises(ValueError, match="taken"):
        index.take(plan)
    index.release(plan)
    assert index.free() == 16


def test_a_placement_of_one_index_counts_in_another_only_if_it_is_held_there() -> None:
    first, second = Index(preset("pod16")), Index(preset("pod16"))
    placement = placed(first, Request(8))
    with pytest.raises(ValueError, match="not held"):
        second.release(placement)
    second.take(placement)
    second.release(placement)
    assert second.free() == 16
    assert first.free() == 8
    first.release(placement)


def test_an_allocation_made_anew_forgets_the_placements_of_the_old() -> None:
    index = Index(preset("pod16"))
    index.define_allocation("a", ["ag1"])
    old = placed(index, Request(4, allocation="a"))
    index.release(old)
    index.remove_allocation("a")
    index.define_allocation("a", ["ag2"])
    with pytest.raises(ValueError, match="not held"):
        index.release(old)
    with pytest.raises(ValueError, match="not in allocation a"):
        index.take(old)
    assert placed(index, Request(4, allocation="a")).blocks == (Block(0, 4, 4),)


def test_a_partition_may_be_given_back_while_its_machine_is_drained_and_resumed() -> None:
    index = Index(preset("pod64"))
    whole = placed(index, Request(64))
    index.drain("ag3")
    index.release(whole)
    assert index.free() == 60
    record = Placement("pod64", (Block(0, 8, 4),), (Block(0, 8, 4),))
    index.take(record)
    index.resume("ag3")
    assert index.free() == 60
    index.release(record)
    assert placed(index, Request(64)).size == 64


def test_more_places_than_are_kept_are_still_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podwright.placement._shape_cache._PLACES_MAX", 7)
    monkeypatch.setattr("podwright.placement._shape_cache._KINDS_MAX", 2)
    index = Index(preset("pod256"))
    requests = [Request(size, gcds=gcds) for size in (1, 4, 2) for gcds in (1, size)]
    held = [placed(index, request) for request in requests for _ in range(18)]
    seen = {(b.domain, b.offset + i) for p in held for b in p.blocks for i in range(b.size)}
    assert len(seen) == sum(placement.size for placement in held) == 252
    for placement in held:
        index.release(placement)
    assert index.free() == 256


@pytest.mark.parametrize("block", [Block(0, 500, 4), Block(0, -4, 4), Block(3, 0, 4)])
def test_a_placement_from_nowhere_is_not_held(block: Block) -> None:
    index = Index(preset("pod16"))
    with pytest.raises(ValueError, match="not held"):
        index.release(Placement("pod16", (block,), (block,)))
    with pytest.raises(ValueError, match="not held"):
        index.release(Placement("pod16", (), ()))
