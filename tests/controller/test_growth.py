"""The cost of a restart and of a heartbeat grows linearly with what they concern."""

from __future__ import annotations

import pytest

from podwright.controller.hardware._recovery import release_strays
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.errors import PodwrightError
from podwright.fabric import preset
from tests.controller.world import World


class Counted:
    """Counts how often blocks were converted to machines, the unit of work of all that examine
    them.
    """

    def __init__(self) -> None:
        self.parts = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, real = Counted(), IndexedCluster.parts

    def parts(cluster: IndexedCluster, blocks: object) -> dict[str, list[int]]:
        counted.parts += 1
        return real(cluster, blocks)  # type: ignore[arg-type]

    monkeypatch.setattr(IndexedCluster, "parts", parts)
    return counted


async def test_a_restart_looks_at_each_partition_a_few_times(counted: Counted) -> None:
    """Regression: 767 s for 10,000 partitions, because every machine examined all of them."""
    world = World([preset("pod256")])
    await world.start()
    for n in range(128):
        await world.create(f"p{n}", 2)
    counted.parts = 0
    await world.restart()
    assert counted.parts <= 8 * (128 + 64)
    assert len(await world.names()) == 128
    await world.check()
    await world.stop()


async def test_a_machine_that_comes_back_looks_at_its_own_partitions_alone(
    counted: Counted,
) -> None:
    world = World([preset("pod256")])
    await world.start()
    for n in range(128):
        await world.create(f"p{n}", 2)
    state = world.controller._state
    entry = state.partitions["p0"]
    (machine,) = entry.machines
    report = await state.hardware.describe(machine)
    counted.parts = 0
    assert await release_strays(state, machine, report)
    assert 0 < counted.parts <= 4
    owners = state.partitions.owners(machine)
    assert {e.name for e in state.partitions.on(machine)} == set(owners.values())
    await world.stop()


async def test_what_is_on_a_machine_follows_every_change() -> None:
    """The index by machine agrees with the records, whatever happens to a partition."""
    world = World([preset("pod16")])
    await world.start()

    def check() -> None:
        state = world.controller._state
        for machine in world.machines:
            there = {
                e.name
                for e in state.partitions.values()
                if e.record is not None and machine in e.parts()
            }
            assert {e.name for e in state.partitions.on(machine)} == there

    await world.create("a", 4, relocatable=True)
    await world.create("b", 8)
    check()
    held = await world.acquire("b", 4, update=True)  # another shape: made anew
    check()
    await world.release(held)
    (machine,) = world.controller._state.partitions["a"].machines
    world.machines[machine].set_down(True)
    with pytest.raises(PodwrightError):
        await world.remove("a")
    check()
    await world.time.advance(30)  # it moves
    assert world.controller._state.partitions["a"].machines != (machine,)
    check()
    await world.restart()
    check()
    await world.remove("a")
    check()
    await world.stop()
