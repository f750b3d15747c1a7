"""The topology table, to the letter."""

from __future__ import annotations

import pytest

from podwright.launcher.plan._topology_table import topology_table

SEEN = """\
 ===========================================
|              poprun topology              |
|===========================================|
| hosts     |           localhost           |
|-----------|-------------------------------|
| ILDs      |               0               |
|-----------|-------------------------------|
| instances |       0       |       1       |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------"""


def test_the_table_is_the_one_that_poprun_was_seen_to_print() -> None:
    assert topology_table(["localhost"] * 2, 8, 1) == SEEN


def test_cells_grow_with_two_digits() -> None:
    lines = topology_table(["localhost"] * 2, 16, 2).splitlines()
    assert lines[-2].startswith("| replicas  | 0  | 1  |")
    assert lines[-2].endswith("| 14 | 15 |")
    assert lines[5].count("|") == 4


def test_several_hosts_share_their_instances() -> None:
    lines = topology_table(["pod1", "pod1", "pod2", "pod2"], 8, 1).splitlines()
    assert lines[3] == "| hosts     |     pod1      |     pod2      |"


@pytest.mark.parametrize(
    ("hosts", "replicas", "ilds"),
    [(1, 1, 1), (1, 1, "decided by the server"), (3, 3, 2), (2, 2, 5), (128, 256, 4)],
)
def test_every_line_is_as_wide_as_the_others(hosts: int, replicas: int, ilds: int | str) -> None:
    lines = topology_table(["localhost"] * hosts, replicas, ilds).splitlines()
    widths = {len(line) for line in lines[1:-1]}
    assert len(widths) == 1
    assert len(lines[0]) == len(lines[-1]) == widths.pop() - 1
