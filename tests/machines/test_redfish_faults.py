"""The fault kit over the drivers of Redfish zones, of pools, and of Redfish compositions."""

from __future__ import annotations

import pytest

from podwright.testing import FabricFault, check_fabric_driver
from tests.machines.composition_rig import CompositionRig
from tests.machines.redfish_rig import PoolRig, RedfishRig


async def _runs(seeds: range, rig: type[RedfishRig] = RedfishRig) -> dict[FabricFault, int]:
    injected: dict[FabricFault, int] = {}
    for seed in seeds:
        run = await check_fabric_driver(rig(seed), seed)
        for fault, count in run.injected.items():
            injected[fault] = injected.get(fault, 0) + count
    return injected


@pytest.mark.parametrize("rig", [RedfishRig, PoolRig, CompositionRig])
async def test_a_few_lives(rig: type[RedfishRig]) -> None:
    injected = await _runs(range(12), rig)
    assert len(injected) > 6


@pytest.mark.soak
@pytest.mark.parametrize("rig", [RedfishRig, PoolRig, CompositionRig])
async def test_two_hundred_lives(rig: type[RedfishRig]) -> None:
    injected = await _runs(range(200), rig)
    assert set(injected) == set(FabricFault) - {FabricFault.HALF_DONE}
