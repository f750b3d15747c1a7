"""What tests print of two values that differ."""

from __future__ import annotations

import pytest

from podwright.wire import ClusterInfo, ClusterList
from tests.differing_fields import differing_fields


def clusters(free: int = 4) -> ClusterList:
    return ClusterList(clusters=[ClusterInfo(name="c", family="f", size=4, free=free)])


def test_the_one_field_that_differs_is_named() -> None:
    assert differing_fields(clusters(), clusters()) == []
    assert differing_fields(clusters(free=3), clusters()) == ["clusters[0].free: 3, not 4"]
    assert differing_fields({"a": [(1, 2)]}, {"a": [(1, 3)]}) == ["a[0][1]: 2, not 3"]


@pytest.mark.parametrize(
    ("value", "expected"), [([1], [1, 2]), ({"a": 1}, {"b": 1}), (1, "1"), ([1], (1,))]
)
def test_values_of_two_shapes_are_printed_whole(value: object, expected: object) -> None:
    assert differing_fields(value, expected) == [f"the value: {value!r}, not {expected!r}"]
    assert differing_fields([value], [expected]) == [f"[0]: {value!r}, not {expected!r}"]
