"""A fixture: a running controller over a simulated POD16."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.controller.world import World


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    """A world with a running controller. The invariants are checked at the end of each test."""
    made = World()
    await made.start()
    yield made
    if made.running and made.controller.failure is None:
        await made.check()
    await made.stop()
