"""Tests that hold on every machine: on its real GPUs if it has any, else on the stand-in.

Nothing here resets a GPU, or takes one from a program that uses it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from podwright.agents.gpu import GpuMachine, may_have_gpus, open_machine
from podwright.errors import Fenced, Internal
from podwright.fabric import Machine
from podwright.hosts.gpus import open_libraries, take_inventory
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE


@pytest.fixture
def environ(described: Path) -> Mapping[str, str]:
    """This machine's environment, with the stand-in where it has no GPU."""
    if may_have_gpus(os.environ):
        return os.environ
    return {**os.environ, STANDIN_VARIABLE: str(described)}


@pytest.fixture
async def machine(environ: Mapping[str, str]) -> AsyncIterator[GpuMachine]:
    """Its GPUs behind the driver seam, without guards."""
    found = open_machine(Machine("here"), environ, release_patience=0.0)
    assert found is not None
    yield found
    found.close()


def test_the_inventory_agrees_with_itself(environ: Mapping[str, str]) -> None:
    found = take_inventory(environ)
    assert found.gpus
    assert found.drivers
    assert [gpu.bus for gpu in found.gpus] == sorted(gpu.bus for gpu in found.gpus)
    for gpu in found.gpus:
        assert gpu.uuid.startswith("GPU-")
        assert gpu.type
        assert gpu.type in gpu.name.lower().replace(" ", "_").replace("-", "_")
        assert gpu.memory > 1 << 30
        assert all(n >= 0 for i, n in enumerate(gpu.links) if i != gpu.index)


def test_health_holders_and_samples(environ: Mapping[str, str]) -> None:
    libraries, _ = open_libraries(environ)
    assert libraries
    for library in libraries:
        for gpu in library.gpus():
            health, sample = library.health(gpu.index), library.sample(gpu.index)
            assert health.row_remap in ("", "none", "pending", "failed")
            assert bool(health.ecc_uncorrected) <= bool(health.problems)
            assert sample.memory is None or 0 <= sample.memory <= gpu.memory
            assert sample.load is None or 0 <= sample.load <= 100
            assert sample.watts is None or sample.watts < 5000
            for holder in library.holders(gpu.index):
                assert holder.pid > 0
        library.close()


async def test_described_and_fenced(machine: GpuMachine) -> None:
    said = await machine.describe()
    assert len(said.devices) == machine.family.devices_per_machine == len(machine.gpus)
    assert [d.chip_id for d in said.devices] == [gpu.uuid for gpu in machine.gpus]
    for device in said.devices:
        assert {"name", "uuid", "pci bus", "memory", "driver version"} <= device.attributes.keys()
    free = [d.index for d in said.devices if d.healthy and "processes" not in d.attributes]
    for index in free[:1]:
        await machine.configure("p1", 5, [index])
        assert (await machine.describe()).configured == {index: ("p1", 5)}
        with pytest.raises(Fenced):
            await machine.release(4, [index])
        await machine.reset(6, [index])
        await machine.release(7, [index])
        assert (await machine.describe()).configured == {}
    for index in {d.index for d in said.devices} - set(free):
        with pytest.raises(Internal, match=r"is (held by|unhealthy)"):
            await machine.configure("p1", 5, [index])


async def test_many_at_once(machine: GpuMachine) -> None:
    """A library must not be called from two threads at a time, so callers wait for each other."""
    reports = await asyncio.gather(*(machine.describe() for _ in range(20)))
    assert len({tuple(d.chip_id for d in report.devices) for report in reports}) == 1
