"""What programs see in a partition, against the listings of real machines."""

from __future__ import annotations

import pytest

from podwright.wire import device_sets
from tests.cli.test_vipu import partition


def _routing(size: int) -> list[tuple[int, ...]]:
    found = device_sets(partition(size=size, reconfigurable=True))
    assert [d.id for d in found] == list(range(2 * size - 1))
    return [d.routing for d in found]


def test_a_machine_as_gc_info_lists_it() -> None:
    assert _routing(4) == [(3,), (2,), (1,), (0,), (0, 1), (2, 3), (0, 1, 2, 3)]


def test_two_machines_each_in_reverse() -> None:
    found = _routing(8)
    assert found[:8] == [(3,), (2,), (1,), (0,), (7,), (6,), (5,), (4,)]
    assert found[8:12] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert found[12:] == [(0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))]


@pytest.mark.parametrize("size", [1, 2, 16, 64])
def test_every_aligned_subset_is_there_once(size: int) -> None:
    found = _routing(size)
    assert len(set(found)) == 2 * size - 1
    for group in found:
        assert group == tuple(range(group[0], group[0] + len(group)))
        assert group[0] % len(group) == 0
        assert len(group) & (len(group) - 1) == 0


def test_a_fixed_partition_has_a_device_for_each_gcd() -> None:
    found = device_sets(partition(size=8, gcds=2))
    assert [(d.gcd, d.routing) for d in found] == [(0, (0, 1, 2, 3)), (1, (4, 5, 6, 7))]
