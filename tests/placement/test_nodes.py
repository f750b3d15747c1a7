"""Placement of GPUs: inside machines, over whole ones, and never refused without need."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.fabric import (
    HGX8,
    MACHINE_SUBSET_OR_WHOLE_MACHINES,
    MACHINES_OF_A_SWITCH,
    NVL72,
    BlockRule,
    Cluster,
    gpu_family,
    preset,
    simulated_gpus,
)
from podwright.placement import Block, NodeIndex, Placement, Refusal, Request, index_of


def placed(index: NodeIndex, request: Request) -> Placement:
    answer = index.allocate(request)
    assert isinstance(answer, Placement), answer
    return answer


def refused(index: NodeIndex, request: Request) -> Refusal:
    answer = index.plan(request)
    assert isinstance(answer, Refusal), answer
    return answer


@pytest.fixture
def node() -> NodeIndex:
    """One machine of 8."""
    return NodeIndex(preset("hgx8"))


@pytest.fixture
def row() -> NodeIndex:
    """Four machines of 8, joined by a network."""
    return NodeIndex(preset("hgx8x4"))


def test_the_family_chooses_the_index() -> None:
    assert isinstance(index_of(preset("nvl72")), NodeIndex)
    assert not isinstance(index_of(preset("pod16")), NodeIndex)


@pytest.mark.parametrize("size", range(1, 9))
def test_any_number_inside_a_machine(node: NodeIndex, size: int) -> None:
    placement = placed(node, Request(size, gcds=size))
    assert placement.blocks == (Block(0, 0, size),)
    assert placement.gcds == tuple(Block(0, i, 1) for i in range(size))
    assert node.free() == 8 - size


def test_halves_and_quarters_are_kept_whole(node: NodeIndex) -> None:
    for request, offset in ((Request(1), 0), (Request(2), 2), (Request(4), 4), (Request(1), 1)):
        assert placed(node, request).blocks == (Block(0, offset, request.size),)


def test_several_processes_take_gpus_apart_where_none_lie_together(node: NodeIndex) -> None:
    for at in (1, 4, 6):
        placed(node, Request(1, blocks=(Block(0, at, 1),)))
    assert refused(node, Request(4)).rule == (
        "5 GPUs are free, but no 4 side by side in one machine"
    )
    placement = placed(node, Request(4, gcds=4))
    assert placement.blocks == (Block(0, 0, 1), Block(0, 2, 1), Block(0, 5, 1), Block(0, 7, 1))
    assert len(placement.gcds) == 4


def test_whole_machines_beyond_one(row: NodeIndex) -> None:
    assert placed(row, Request(16, gcds=2)).blocks == (Block(0, 0, 8), Block(1, 0, 8))
    no = refused(row, Request(12, gcds=2))
    assert no.never
    assert no.nearest_sizes == (8, 16)
    assert "whole machines of 8" in no.rule
    assert refused(row, Request(40, gcds=5)).never
    late = refused(row, Request(24, gcds=3))
    assert (late.never, late.free, late.largest) == (False, 16, 16)


def test_small_ones_leave_machines_whole(row: NodeIndex) -> None:
    first = placed(row, Request(3))
    assert placed(row, Request(5)).blocks[0].domain == first.blocks[0].domain
    placed(row, Request(2))
    assert placed(row, Request(6)).blocks[0].domain == 1
    assert row.free() == 16
    placed(row, Request(16, gcds=2))


def test_one_nvlink_domain_is_better_than_two() -> None:
    index = NodeIndex(simulated_gpus("racks", NVL72, 2))
    placed(index, Request(40, gcds=10))  # leaves 8 trays there
    assert {b.domain for b in placed(index, Request(36, gcds=9)).blocks} == {1}
    assert {b.domain for b in placed(index, Request(32, gcds=8)).blocks} == {0}
    assert placed(index, Request(4)).blocks[0].domain == 1


def test_over_so_many_link_domains_as_are_asked_for() -> None:
    index = NodeIndex(simulated_gpus("racks", NVL72, 2))
    blocks = placed(index, Request(16, domains=2, gcds=4)).blocks
    assert [b.domain for b in blocks] == [0, 0, 1, 1]
    assert refused(index, Request(12, domains=2, gcds=3)).never
    assert placed(index, Request(80, gcds=20)).size == 80


def test_no_network_joins_nothing() -> None:
    single = preset("hgx8x4")
    apart = Cluster("apart", HGX8, single.domains, simulated=True)
    assert "no links join" in refused(NodeIndex(apart), Request(16, gcds=2)).rule


def test_what_is_drained_takes_nothing_and_keeps_what_it_has(row: NodeIndex) -> None:
    kept = placed(row, Request(8))
    row.drain("gpu1")
    row.drain("gpu2")
    assert placed(row, Request(8)).blocks[0].domain == 2
    assert row.free() == 8
    row.release(kept)
    assert row.free() == 8
    row.resume("gpu1")
    assert row.free() == 16


def test_nothing_new_goes_on_what_is_ill(node: NodeIndex) -> None:
    node.avoid_devices("gpu1", [2])
    assert node.free() == 7
    assert placed(node, Request(3)).blocks == (Block(0, 4, 3),)
    assert refused(node, Request(8)).rule == "8 GPUs are asked for and 4 are free"
    node.avoid_devices("gpu1", [])
    assert placed(node, Request(4)).blocks == (Block(0, 0, 4),)
    with pytest.raises(ValueError, match="no machine"):
        node.avoid_devices("gpu9", [])


def test_allocations(row: NodeIndex) -> None:
    row.define_allocation("a", ["gpu2", "gpu1"])
    row.define_allocation("b", ["gpu4"])
    assert refused(row, Request(24, gcds=3)).never
    assert placed(row, Request(8, allocation="b")).blocks == (Block(3, 0, 8),)
    assert not refused(row, Request(4, allocation="b")).never
    assert refused(row, Request(1, allocation="c")).never
    with pytest.raises(ValueError, match="is in allocation a"):
        row.define_allocation("c", ["gpu1"])
    with pytest.raises(ValueError, match="has partitions"):
        row.remove_allocation("b")
    assert (row.size(), row.size("b")) == (24, 8)


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (Request(0), "at least one"),
        (Request(3, gcds=2), "do not divide evenly"),
        (Request(16, gcds=1), "a GCD lies in one machine"),
        (Request(4, domains=2), "so in one link domain"),
        (Request(0, blocks=(Block(0, 6, 4),)), "not all there"),
        (Request(0, blocks=(Block(0, 0, 2), Block(0, 1, 1))), "named twice"),
        (Request(0, blocks=(Block(0, 0, 8), Block(1, 0, 4)), gcds=5), "do not divide evenly"),
        (Request(0, blocks=(Block(0, 0, 3), Block(1, 0, 1)), gcds=2), "a run of 2 neighbours"),
        (Request(5, blocks=(Block(0, 0, 4),)), "where 5 are asked for"),
    ],
)
def test_what_can_never_be(row: NodeIndex, request_: Request, rule: str) -> None:
    no = refused(row, request_)
    assert no.never
    assert rule in no.rule


def test_devices_that_another_chose_may_be_any(row: NodeIndex) -> None:
    chosen = (Block(0, 1, 1), Block(0, 6, 1), Block(2, 0, 2))
    placement = placed(row, Request(4, blocks=chosen, gcds=4))
    assert placement.blocks == chosen
    assert len(placement.gcds) == 4
    assert not refused(row, Request(1, blocks=(Block(0, 6, 1),))).never
    row.release(placement)
    row.take(placement)


def test_a_record_of_before_is_taken_as_it_was(row: NodeIndex) -> None:
    old = Placement("hgx8x4", (Block(1, 2, 3),), (Block(1, 2, 3),))
    row.take(old)
    with pytest.raises(ValueError, match="taken"):
        row.take(Placement("hgx8x4", (Block(1, 4, 1),), (Block(1, 4, 1),)))
    with pytest.raises(ValueError, match="not in allocation"):
        row.take(Placement("hgx8x4", (Block(4, 0, 1),), (Block(4, 0, 1),)))
    row.release(Placement("hgx8x4", (Block(1, 2, 3),), (Block(1, 2, 3),)))
    with pytest.raises(ValueError, match="not held"):
        row.release(old)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from((4, 8)),
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from((0, 1, 2, 3, 4, 8)), st.integers(0, 5)),
        max_size=25,
    ),
    st.sampled_from((MACHINES_OF_A_SWITCH, MACHINE_SUBSET_OR_WHOLE_MACHINES)),
)
def test_refused_only_where_nothing_legal_is_free(
    per: int, steps: list[tuple[int, int, int]], rule: BlockRule
) -> None:
    """Against a search of everything: 2 racks of 3 trays of 4 or 8 GPUs. Of GCDs, 0: one each."""
    family = replace(gpu_family("small", per, 3 * per), block_rule=rule)
    index = NodeIndex(simulated_gpus("small", family, 2))
    held: list[Placement] = []
    taken: set[tuple[int, int]] = set()
    for size, asked, let_go in steps:
        gcds = asked or size
        if held and let_go < 2:
            gone = held.pop(let_go % len(held))
            index.release(gone)
            taken -= _devices(gone)
        answer = index.allocate(Request(size, gcds=gcds))
        if isinstance(answer, Refusal):
            assert not _possible(taken, size, gcds, per, rule), (size, gcds, taken)
            assert answer.largest <= answer.free == 6 * per - len(taken)
            continue
        mine = _devices(answer)
        assert len(mine) == size
        assert not mine & taken
        assert len(answer.gcds) == gcds
        assert set(itertools.chain.from_iterable(_run(b) for b in answer.gcds)) == mine
        machines = {(d, o // per) for d, o in mine}
        assert len(machines) == 1 or len(machines) == size // per + bool(size % per)
        assert size < per or size % per == 0 or (rule.trims and len({d for d, _ in machines}) == 1)
        assert all(b.offset // per == (b.offset + b.size - 1) // per for b in answer.gcds)
        taken |= mine
        held.append(answer)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from((4, 8)), st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_no_more_is_taken_than_is_asked_for(per: int, sizes: list[int]) -> None:
    """On an aligned block, where its machine has one that is free; what is left of it is for small
    requests."""
    index = NodeIndex(simulated_gpus("small", gpu_family("small", per, 3 * per), 2))
    free = {(d, at) for d in range(2) for at in range(3 * per)}
    for size in sizes:
        answer = index.allocate(Request(min(size, per - 1)))
        if isinstance(answer, Refusal):
            continue
        (block,) = answer.blocks
        around = 1 << (block.size - 1).bit_length()
        machine = block.offset // per * per
        aligned = [
            at
            for at in range(machine, machine + per, around)
            if {(block.domain, at + i) for i in range(block.size)} <= free
        ]
        assert not aligned or block.offset % around == 0
        free -= _devices(answer)
        assert index.free() == len(free)
    for left in range(len(free), 0, -1):
        one = index.allocate(Request(1))
        assert isinstance(one, Placement), left
        assert _devices(one) <= free
        free -= _devices(one)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from((4, 8)), st.lists(st.integers(1, 23), min_size=1, max_size=12))
def test_of_the_last_machine_no_more_is_taken_than_is_asked_for(per: int, sizes: list[int]) -> None:
    """Where a switch joins machines: the same answers each time, and what is left of the last
    machine is for small requests."""
    cluster = simulated_gpus("small", gpu_family("small", per, 3 * per), 2)
    index, again = NodeIndex(cluster), NodeIndex(cluster)
    free = {(d, at) for d in range(2) for at in range(3 * per)}
    for size in sizes:
        answer = index.allocate(Request(size, gcds=size))
        assert answer == again.allocate(Request(size, gcds=size))
        if isinstance(answer, Placement):
            mine = _devices(answer)
            broken = {(d, at // per) for d, at in mine if not _machine(d, at, per) <= mine}
            assert len(mine) == size
            assert len(broken) == bool(size % per)
            assert mine <= free
            free -= mine
    for left in range(len(free), 0, -1):
        one = index.allocate(Request(1))
        assert isinstance(one, Placement), left
        assert _devices(one) <= free
        free -= _devices(one)


def test_a_part_of_a_machine_beside_whole_ones() -> None:
    index = index_of(preset("nvl72"))
    assert isinstance(index, NodeIndex)
    assert placed(index, Request(2)).blocks == (Block(0, 0, 2),)
    assert placed(index, Request(6, gcds=3)).blocks == (Block(0, 2, 2), Block(0, 4, 4))
    assert placed(index, Request(7, gcds=7)).blocks == (Block(0, 8, 4), Block(0, 12, 3))
    assert placed(index, Request(1)).blocks == (Block(0, 15, 1),)
    no = refused(index, Request(62, gcds=62))
    assert (no.never, no.rule) == (False, "62 GPUs are asked for and 56 are free")
    assert "one of 3 GPUs does not divide its 4" in refused(index, Request(6, gcds=2)).rule
    no = refused(index, Request(73, gcds=73))
    assert "they lie in one link domain, of 72 at most" in no.rule
    assert no.nearest_sizes == (72,)


def _machine(domain: int, at: int, per: int) -> set[tuple[int, int]]:
    return {(domain, at // per * per + i) for i in range(per)}


def _run(block: Block) -> list[tuple[int, int]]:
    return [(block.domain, block.offset + i) for i in range(block.size)]


def _devices(placement: Placement) -> set[tuple[int, int]]:
    return set(itertools.chain.from_iterable(_run(block) for block in placement.blocks))


def _possible(taken: set[tuple[int, int]], size: int, gcds: int, per: int, rule: BlockRule) -> bool:
    if size % gcds:
        return False
    machines = [[(d, per * m + i) for i in range(per)] for d in range(2) for m in range(3)]
    free = [[device for device in machine if device not in taken] for machine in machines]
    share = size // gcds
    count, rest = divmod(size, per)
    if count and rest:
        return (rule.trims and per % share == 0) and any(
            _whole(rack, per) - (len(machine) == per) >= count
            and _fits([machine], rest // share, share)
            for rack in (free[:3], free[3:])
            for machine in rack
        )
    if count:
        return _whole(free, per) >= count and gcds % count == 0
    return _fits(free, gcds, share)


Free = list[list[tuple[int, int]]]


def _whole(machines: Free, per: int) -> int:
    return sum(len(machine) == per for machine in machines)


def _fits(machines: Free, gcds: int, share: int) -> bool:
    for machine in machines:
        runs = [
            {(d, o + i) for i in range(share)}
            for d, o in machine
            if all((d, o + i) in machine for i in range(share))
        ]
        for some in itertools.combinations(runs, gcds):
            if len(set().union(*some)) == gcds * share:
                return True
    return False
