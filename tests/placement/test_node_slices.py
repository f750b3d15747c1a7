"""Slices of GPUs: theirs who ask for them, and nobody else's."""

from __future__ import annotations

import random

import pytest

from podwright.fabric import gpu_family, simulated_gpus
from podwright.placement import Block, NodeIndex, Placement, Refusal, Request

BIG, SMALL = "3g.40gb", "1g.10gb"


@pytest.fixture
def index() -> NodeIndex:
    """Two machines: two GPUs each, and slices, of which the second has less."""
    made = NodeIndex(simulated_gpus("c", gpu_family("gpu7", 7, 7), 2))
    made.cut("gpu1", {2: SMALL, 3: BIG, 4: SMALL, 5: SMALL, 6: BIG})
    made.cut("gpu2", {2: SMALL, 3: SMALL, 4: BIG, 5: BIG, 6: BIG})
    return made


def slices(size: int, profile: str = SMALL) -> Request:
    return Request(size, gcds=size, profile=profile)


def test_each_profile_goes_to_those_who_ask(index: NodeIndex) -> None:
    two = index.allocate(slices(2))  # where fewest are left
    assert two == Placement("c", (Block(1, 2, 2),), (Block(1, 2, 1), Block(1, 3, 1)))
    three = index.allocate(slices(3))
    assert isinstance(three, Placement)
    assert three.blocks == (Block(0, 2, 1), Block(0, 4, 2))
    assert index.allocate(slices(1)) == Refusal(
        False, "1 slices of 1g.10gb are asked for, and no machine has more than 0 free"
    )
    index.release(three)
    assert isinstance(index.plan(slices(3)), Placement)


def test_whole_devices_are_no_slices(index: NodeIndex) -> None:
    assert (index.free(), index.size()) == (4, 14)
    for _ in range(2):
        assert isinstance(index.allocate(Request(2)), Placement)
    assert isinstance(index.plan(Request(1)), Refusal)
    whole = index.plan(Request(7))  # a machine with slices is never given whole
    assert isinstance(whole, Refusal)
    named = index.plan(Request(2, blocks=(Block(0, 2, 2),), gcds=2))
    assert isinstance(named, Placement)  # who names them knows what they are


def test_what_slices_cannot_be(index: NodeIndex) -> None:
    for request, rule in (
        (slices(1, "7g.80gb"), "no GPU is cut into slices of 7g.80gb; there are: 1g.10gb, 3g.40gb"),
        (slices(4), "no machine has more than 3 slices of 1g.10gb"),
        (Request(2, gcds=1, profile=SMALL), "a program uses one slice: there are as many GCDs"),
        (Request(2, None, 2, 2, profile=SMALL), "in one machine, so in one link domain"),
    ):
        refused = index.plan(request)
        assert isinstance(refused, Refusal)
        assert refused.never
        assert rule in refused.rule


def test_ill_and_drained_slices_are_left_alone(index: NodeIndex) -> None:
    index.avoid_devices("gpu1", [2])
    index.drain("gpu2")
    found = index.plan(slices(2))
    assert isinstance(found, Placement)
    assert found.blocks == (Block(0, 4, 2),)
    assert isinstance(index.plan(slices(3)), Refusal)
    index.cut("gpu1", {})  # out of MIG mode
    assert isinstance(index.plan(slices(1)), Refusal)
    assert index.free() == 6


def test_nobody_gets_what_is_anothers_or_not_its_kind(index: NodeIndex) -> None:
    rng = random.Random(3)
    kinds = {(0, i): k for i, k in {2: SMALL, 3: BIG, 4: SMALL, 5: SMALL, 6: BIG}.items()}
    kinds |= {(1, i): k for i, k in {2: SMALL, 3: SMALL, 4: BIG, 5: BIG, 6: BIG}.items()}
    held: list[Placement] = []
    for _ in range(600):
        profile = rng.choice(("", SMALL, BIG))
        size = rng.randint(1, 3)
        request = slices(size, profile) if profile else Request(size)
        found = index.allocate(request)
        if isinstance(found, Placement):
            bits = [(d, o + i) for d, o, n in found.blocks for i in range(n)]
            assert len(bits) == size
            assert all(kinds.get(bit, "") == profile for bit in bits)
            assert [n for _, _, n in found.gcds] == ([1] * size if profile else [size])
            held.append(found)
        taken = [(d, o + i) for one in held for d, o, n in one.blocks for i in range(n)]
        assert len(set(taken)) == len(taken)
        if held and rng.random() < 0.6:
            index.release(held.pop(rng.randrange(len(held))))
