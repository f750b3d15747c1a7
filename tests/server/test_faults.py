"""The steps at which tests kill a server from inside."""

from __future__ import annotations

import pytest

from podwright.fabric import preset
from podwright.server import ServedHardware
from podwright.server.machines._served_hardware import ClustersSource
from tests.server import kill_point
from tests.server.kill_point import KillPoint

SIMULATED = ServedHardware((preset("pod4"),), ClustersSource(preset="pod4"))


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Instead of killing this process."""
    died: list[int] = []
    monkeypatch.setattr(kill_point, "die", lambda: died.append(1))
    return died


def test_the_server_dies_at_the_nth_event_of_a_kind_once_the_drivers_are_made(
    deaths: list[int],
) -> None:
    fault = KillPoint("commit:2:before")
    assert [fault.before("commit") for _ in range(3)] == [False] * 3, "no drivers yet"
    fault.drivers(SIMULATED)
    assert [fault.before(kind) for kind in ("driver", "commit", "driver")] == [False] * 3
    assert not deaths
    fault.before("commit")
    assert deaths == [1]


def test_a_kill_after_an_event_lets_the_event_happen_first(deaths: list[int]) -> None:
    fault = KillPoint("driver:1:after")
    fault.drivers(SIMULATED)
    assert fault.before("driver")
    assert not deaths, "the step is still to be done"
