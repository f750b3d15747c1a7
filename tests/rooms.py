"""Seconds of a test run by room: wall time, and processor time of tests and what they started.

With several workers each worker measures its own tests. The processor time of a process that a test
started counts once that process has been waited for, so a server which outlives its test counts
with the test that ends it.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pytest

_PROPERTY = "podwright seconds"
#: Seconds of wall time below which a run prints no table.
_SHORT_RUN = 10.0


class Seconds(NamedTuple):
    """What tests took."""

    wall: float
    processor: float

    def __add__(self, other: object) -> Seconds:
        assert isinstance(other, Seconds)
        return Seconds(self.wall + other.wall, self.processor + other.processor)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note when a test begins."""
    item.stash[_BEGIN] = _now()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Add to a test's last report what the test took."""
    try:
        return (yield)
    finally:
        begin, end = item.stash[_BEGIN], _now()
        spent = Seconds(end.wall - begin.wall, end.processor - begin.processor)
        item.user_properties.append((_PROPERTY, tuple(spent)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, the most expensive room first."""
    rooms = by_room(terminalreporter)
    total = sum(rooms.values(), Seconds(0.0, 0.0))
    if total.wall < _SHORT_RUN:
        return
    terminalreporter.section("seconds by room: wall, processor")
    for room, spent in sorted(rooms.items(), key=lambda each: -each[1].processor):
        terminalreporter.line(f"{spent.wall:8.1f} {spent.processor:8.1f}  {room}")
    terminalreporter.line(f"{total.wall:8.1f} {total.processor:8.1f}  all tests")


def by_room(terminalreporter: pytest.TerminalReporter) -> dict[str, Seconds]:
    """The seconds of each folder of tests/ that holds tests which ran."""
    rooms: dict[str, Seconds] = defaultdict(lambda: Seconds(0.0, 0.0))
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for name, value in report.user_properties:
                    if name == _PROPERTY:
                        rooms[os.path.dirname(report.fspath)] += Seconds(*value)
    return rooms


_BEGIN = pytest.StashKey[Seconds]()


def _now() -> Seconds:
    spent = os.times()
    processor = spent.user + spent.system + spent.children_user + spent.children_system
    return Seconds(time.monotonic(), processor)
