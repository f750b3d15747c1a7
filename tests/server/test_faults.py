"""The seam by which tests kill a server from inside: never on real hardware, never unasked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podwright.errors import Denied, InvalidRequest
from podwright.fabric import preset
from podwright.server import ServedHardware
from podwright.server import _kill_point as faults
from podwright.server._kill_point import KillPoint
from podwright.server.machines._served_hardware import ClustersSource

SIMULATED = ServedHardware((preset("pod4"),), ClustersSource(preset="pod4"))


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Instead of killing this process."""
    died: list[int] = []
    monkeypatch.setattr(faults, "die", lambda: died.append(1))
    return died


def asked(text: str) -> KillPoint:
    fault = KillPoint.from_environment({"PODWRIGHT_FAULT": text})
    assert fault is not None
    return fault


def test_nobody_asks_for_nothing() -> None:
    assert KillPoint.from_environment({}) is None
    assert KillPoint.from_environment({"PODWRIGHT_FAULT": ""}) is None


@pytest.mark.parametrize("text", ["commit", "commit:x:before", "boot:1:after", "driver:1:between"])
def test_what_names_no_step_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="names no step"):
        asked(text)


def test_real_hardware_is_refused() -> None:
    real = ServedHardware(
        (preset("pod4"), replace(preset("pod4"), simulated=False)), ClustersSource()
    )
    with pytest.raises(Denied, match="its hardware is real"):
        asked("commit:1:before").arm(real)


def test_it_dies_at_the_nth_of_its_kind_once_armed(deaths: list[int]) -> None:
    fault = asked("commit:2:before")
    assert [fault.before("commit") for _ in range(3)] == [False] * 3, "not armed"
    fault.arm(SIMULATED)
    assert [fault.before(kind) for kind in ("driver", "commit", "driver")] == [False] * 3
    assert not deaths
    fault.before("commit")
    assert deaths == [1]


def test_after_means_that_it_is_done_first(deaths: list[int]) -> None:
    fault = asked("driver:1:after")
    fault.arm(SIMULATED)
    assert fault.before("driver")
    assert not deaths, "the step is still to be done"
