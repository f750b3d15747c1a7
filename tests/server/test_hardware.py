"""The hardware of a server: that of its store first, then of its options, then what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from podwright import wire
from podwright.agents import SimulatedMachine
from podwright.agents.gpu import GpuMachine
from podwright.errors import WrongState
from podwright.fabric import IPU, preset
from podwright.server.machines import _served_hardware
from podwright.server.machines._served_hardware import ClustersSource, ServedHardware, choose
from podwright.store import MemoryStore

Records = Mapping[tuple[str, str], bytes]


async def _after(name: str, *more: tuple[str, str]) -> Records:
    return await _kept(choose({}, preset_name=name), *more)


async def _kept(hardware: ServedHardware, *more: tuple[str, str]) -> Records:
    store = MemoryStore()
    await store.open()
    await hardware.remember(store)
    await store.close()
    records = dict((await store.open()).records)
    await store.close()
    return {**records, **dict.fromkeys(more, b"{}")}


def test_nothing_at_all_is_a_simulated_pod16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_served_hardware, "detect", lambda: None)
    hardware = choose({})
    assert [c.name for c in hardware.clusters] == ["pod16"]
    assert hardware.nothing_found
    assert hardware.simulated


def test_what_is_found_wins_over_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        _served_hardware, "detect", lambda: ServedHardware((preset("pod4"),), ClustersSource())
    )
    hardware = choose({})
    assert [c.name for c in hardware.clusters] == ["pod4"]
    assert not hardware.nothing_found


async def test_this_machines_gpus_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / "gpus.toml"
    described.write_text("gpus = 2\n")
    monkeypatch.setenv("PODWRIGHT_STANDIN_NVML", str(described))
    hardware = choose({})
    (cluster,) = hardware.clusters
    assert (cluster.family.name, cluster.size, hardware.simulated) == ("gpu2", 2, True)
    (driver,) = hardware.drivers().values()
    assert len((await driver.describe()).devices) == 2
    store = MemoryStore()
    await store.open()
    await hardware.remember(store)
    await store.close()
    records = (await store.open()).records
    again = choose(records)
    assert again.clusters == hardware.clusters
    assert again.drivers().keys() == {cluster.domains[0].machines[0].name}
    described.unlink()
    with pytest.raises(WrongState, match="this machine's own GPUs"):
        choose(records)
    await store.close()
    for one in (driver, *again.drivers().values()):
        assert isinstance(one, GpuMachine)
        one.close()


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
        match=r"serve pod16: the store holds partitions of pod64, not of pod16\. Leave the option",
    ):
        choose(records, preset_name="pod16")
    assert not choose(records, preset_name="pod64").news


async def test_an_empty_store_takes_another_preset() -> None:
    hardware = choose(await _after("pod64", ("meta", "schema")), preset_name="pod16")
    assert [c.name for c in hardware.clusters] == ["pod16"]
    assert hardware.news


def test_an_unknown_preset_lists_them() -> None:
    with pytest.raises(
        wire.InvalidRequest,
        match=r"no preset 'pod15'; did you mean pod\d+\? Choose one of pod4, pod8",
    ):
        choose({}, preset_name="pod15")


def _file(folder: Path, name: str, machines: str, *, simulated: bool = True) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nfamily = "ipu"\nsimulated = {str(simulated).lower()}\n'
        f"[[link_domains]]\nmachines = [{machines}]\n"
    )
    return path


async def test_clusters_from_files_are_kept_whole(folder: Path) -> None:
    files = [_file(folder, "a", '"m1", "m2"'), _file(folder, "b", '"m3"')]
    named = choose({}, cluster_files=files)
    assert [(c.name, c.size) for c in named.clusters] == [("a", 8), ("b", 4)]
    assert sorted(named.drivers()) == ["m1", "m2", "m3"]
    records = await _kept(named, ("partition", "p1"))
    for path in files:
        path.unlink()
    assert choose(records).clusters == named.clusters


async def test_a_file_that_was_changed_wins_over_its_older_self(folder: Path) -> None:
    path = _file(folder, "a", '"m1"')
    records = await _kept(choose({}, cluster_files=[path]), ("partition", "p1"))
    assert not choose(records, cluster_files=[path]).news
    _file(folder, "a", '"m1", "m2"')
    changed = choose(records, cluster_files=[path])
    assert changed.news
    assert changed.clusters[0].size == 8


async def test_a_block_rule_is_kept_by_its_name_as_older_stores_have_it(folder: Path) -> None:
    records = await _kept(choose({}, cluster_files=[_file(folder, "a", '"m1"')]))
    ((key, body),) = [(key, body) for key, body in records.items() if key[0] == "server"]
    assert b'"block_rule":"aligned-power-of-two"' in body
    assert choose(records).clusters[0].family.block_rule is IPU.block_rule
    strange = {key: body.replace(b"aligned-power-of-two", b"in-a-ring")}
    with pytest.raises(wire.Unavailable, match="is its package installed"):
        choose(strange)


def test_faulty_cluster_files_are_refused(folder: Path) -> None:
    bad = folder / "bad.toml"
    bad.write_text('name = "a"\nfamily = "ipv"\n[[link_domains]]\nmachines = ["m"]\n')
    with pytest.raises(wire.InvalidRequest, match=r"bad\.toml:2: family: 'ipv' is not known"):
        choose({}, cluster_files=[bad])
    one, two = _file(folder, "a", '"m1"'), _file(folder, "b", '"m2", "m1"')
    with pytest.raises(wire.InvalidRequest, match=r"b\.toml: machine m1 is in another file, too"):
        choose({}, cluster_files=[one, two])
    real = _file(folder, "c", '"m9"', simulated=False)
    with pytest.raises(wire.InvalidRequest, match=r"c is not simulated.*simulated = true"):
        choose({}, cluster_files=[real]).drivers()
