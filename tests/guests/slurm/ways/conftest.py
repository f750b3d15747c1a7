"""A running pod, and a Slurm beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from podwright.testing import FakeSlurm
from tests.guests.slurm.ways.world import Pod


@pytest_asyncio.fixture
async def pod() -> AsyncIterator[Pod]:
    made = Pod()
    await made.controller.start()
    yield made
    await made.controller.close()


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()
