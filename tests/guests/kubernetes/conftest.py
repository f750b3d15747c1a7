"""An operator on a cluster in memory, beside a controller of 16 simulated IPUs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from podwright.guests.kubernetes import (
    DevicePlace,
    FakeKube,
    Operator,
    Partitions,
    PodOptions,
    VipuSite,
)
from podwright.testing import FakePod


class World:
    """The cluster, the controller and the operator. `start` and `kill` may be called repeatedly."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.controller = FakePod(cluster="c")
        self.operator: Operator | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, options: PodOptions | None = None) -> None:
        """Start an operator that knows nothing."""
        place = DevicePlace(VipuSite("vipu", 8090), self.controller, "c")
        partitions = Partitions("lab", [place], time.monotonic, retry_s=0.05)
        self.operator = Operator(
            self.kube,
            partitions,
            wall=time.time,
            clock=time.monotonic,
            pod_options=options,
            refresh_s=0.02,
            sweep_s=0.1,
        )
        self._running = asyncio.create_task(self.operator.run())

    async def kill(self) -> None:
        """Kill the operator: it does nothing more from then on."""
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def until(self, true: Callable[[], Any], what: str = "") -> None:
        """Wait until something holds."""
        end = time.monotonic() + 300
        while not true():
            if time.monotonic() > end or (self._running and self._running.done()):
                raise AssertionError(f"{what}: {self.kube.writes} {self.controller.did}")
            await asyncio.sleep(0.005)

    def status(self, name: str = "job", namespace: str = "team") -> dict[str, Any]:
        """Return a job's status."""
        found: dict[str, Any] = self.kube.objects["IPUJob", namespace, name].get("status") or {}
        return found

    async def becomes(self, state: str, name: str = "job") -> None:
        """Wait for a job's state."""
        await self.until(lambda: self.status(name).get("launcherStatus") == state, state)

    async def pods(self, *names: str) -> None:
        """Wait until exactly these pods exist."""
        await self.until(lambda: self.kube.names() == sorted(names), f"{names}")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.start()
    yield made
    await made.kill()
