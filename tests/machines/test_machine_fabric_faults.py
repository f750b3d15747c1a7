"""The fault kit over what one machine has for itself: Fabric Manager and IMEX channels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podwright.testing import FabricFault, check_fabric_driver
from tests.machines.machine_rigs import ImexRig, ManagerRig

MakeRig = Callable[[int, Path], ManagerRig | ImexRig]
RIGS: dict[str, MakeRig] = {
    "fabric manager": lambda seed, folder: ManagerRig(seed),
    "imex": ImexRig,
}


async def _runs(make: MakeRig, seeds: range, folder: Path) -> dict[FabricFault, int]:
    injected: dict[FabricFault, int] = {}
    for seed in seeds:
        run = await check_fabric_driver(make(seed, folder), seed)
        for fault, count in run.injected.items():
            injected[fault] = injected.get(fault, 0) + count
    return injected


@pytest.mark.parametrize("make", RIGS.values(), ids=RIGS)
async def test_a_few_lives(make: MakeRig, tmp_path: Path) -> None:
    injected = await _runs(make, range(8), tmp_path)
    assert len(injected) >= 4


@pytest.mark.soak
@pytest.mark.parametrize("make", RIGS.values(), ids=RIGS)
async def test_two_hundred_lives(make: MakeRig, tmp_path: Path) -> None:
    injected = await _runs(make, range(200), tmp_path)
    assert set(injected) == make(200, tmp_path).faults
