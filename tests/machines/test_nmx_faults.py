"""The fault kit over NMX-M's driver: seeded lives of a fabric that lies, drops and is shared."""

from __future__ import annotations

import pytest

from podwright.testing import FabricFault, check_fabric_driver
from tests.machines.nmx_rig import NmxRig


async def _runs(seeds: range) -> dict[FabricFault, int]:
    injected: dict[FabricFault, int] = {}
    for seed in seeds:
        run = await check_fabric_driver(NmxRig(seed), seed)
        for fault, count in run.injected.items():
            injected[fault] = injected.get(fault, 0) + count
    return injected


async def test_a_few_lives() -> None:
    injected = await _runs(range(12))
    assert len(injected) > 6


@pytest.mark.soak
async def test_two_hundred_lives() -> None:
    injected = await _runs(range(200))
    assert set(injected) == set(FabricFault) - {FabricFault.STALE_TAG}
