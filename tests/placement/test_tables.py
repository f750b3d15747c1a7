"""The tables behind placement, against what they say spelt out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podwright.placement import _hole_tables as tables

QUARTERS = st.integers(0, tables.QUARTER_FULL)


def holes(mask: int) -> list[tuple[int, int]]:
    """Order and offset of each largest aligned free block."""
    found: list[tuple[int, int]] = []
    for order in range(tables.QUARTER_ORDER, -1, -1):
        for offset in range(0, tables.QUARTER, 1 << order):
            block = (1 << (1 << order)) - 1 << offset
            inside = any(o <= offset < o + (1 << k) for k, o in found)
            if mask & block == block and not inside:
                found.append((order, offset))
    return found


@given(st.one_of(QUARTERS, st.builds(lambda a, b, c: a | b | c, QUARTERS, QUARTERS, QUARTERS)))
def test_holes(mask: int) -> None:
    there = holes(mask)
    assert tables.LARGEST_HOLES[mask] == max((order + 1 for order, _ in there), default=0)
    for order in range(tables.QUARTER_ORDER + 1):
        best = min(((k, o) for k, o in there if k >= order), default=None)
        code = tables.NO_FIT if best is None else best[0] << 4 | best[1]
        assert tables.BEST_HOLES[order][mask] == code


def test_files_put_least_harm_and_then_smallest_holes_highest() -> None:
    files = tables.FILES
    for hole in range(1, tables.HALF_ORDER + 2):
        assert files[3][0][hole] > files[1][0][hole] > files[0][0][hole]
        assert files[1][1][hole] > files[1][0][hole]
        assert files[tables.CRIPPLED_COUNT][0][hole] >= files[6][2][hole]
    assert files[0][0][1] > files[0][0][6] > tables.NOT_FILED
    assert {rows[0] for row in files for rows in row} == {tables.NOT_FILED}


def test_a_whole_link_domain_has_a_file_of_its_own() -> None:
    whole = tables.FILES[0][0][tables.HALF_ORDER + 1]
    others = [
        (here, beside)
        for here, row in enumerate(tables.FILES)
        for beside, numbers in enumerate(row)
        if whole in numbers
    ]
    assert others == [(0, 0)]
