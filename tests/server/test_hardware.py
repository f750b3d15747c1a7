"""What a server serves: its store first, then what it is told, then what it finds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from podwright import wire
from podwright.agents import SimulatedMachine
from podwright.fabric import Cluster, preset
from podwright.server import _hardware
from podwright.server._hardware import choose
from podwright.store import MemoryStore

Records = Mapping[tuple[str, str], bytes]


async def _after(name: str, *more: tuple[str, str]) -> Records:
    store = MemoryStore()
    await store.open()
    await choose({}, preset_name=name).remember(store)
    await store.close()
    records = dict((await store.open()).records)
    await store.close()
    return {**records, **dict.fromkeys(more, b"{}")}


def test_nothing_at_all_is_a_simulated_pod16() -> None:
    hardware = choose({})
    assert [c.name for c in hardware.clusters] == ["pod16"]
    assert hardware.nothing_found
    assert hardware.simulated


def test_what_is_found_wins_over_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Cluster] = [preset("pod4")]
    monkeypatch.setattr(_hardware, "detect", lambda: found)
    hardware = choose({})
    assert [c.name for c in hardware.clusters] == ["pod4"]
    assert not hardware.nothing_found


def test_each_machine_has_a_driver() -> None:
    drivers = choose({}, preset_name="pod64").drivers()
    assert len(drivers) == 16
    assert all(isinstance(driver, SimulatedMachine) for driver in drivers.values())


async def test_a_store_serves_what_it_served() -> None:
    again = choose(await _after("pod64"))
    assert [c.name for c in again.clusters] == ["pod64"]
    assert not again.nothing_found
    assert not again.news


async def test_another_preset_over_a_store_in_use_is_refused() -> None:
    records = await _after("pod64", ("meta", "schema"), ("partition", "p1"))
    with pytest.raises(
        wire.WrongState,
        match=r"serve pod16: the store holds partitions of pod64, not of pod16\. leave the option",
    ):
        choose(records, preset_name="pod16")
    assert not choose(records, preset_name="pod64").news


async def test_an_empty_store_takes_another_preset() -> None:
    hardware = choose(await _after("pod64", ("meta", "schema")), preset_name="pod16")
    assert [c.name for c in hardware.clusters] == ["pod16"]
    assert hardware.news


def test_an_unknown_preset_lists_them() -> None:
    with pytest.raises(
        wire.InvalidRequest, match=r"no preset 'pod15'; did you mean pod\d+\?\. one of pod4, pod8"
    ):
        choose({}, preset_name="pod15")
