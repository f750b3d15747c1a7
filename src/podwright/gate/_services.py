"""What gRPC's own tools ask: grpc.health.v1, and reflection for grpcurl and its like."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

_LOOK = 1.0


class GateHealth:
    """Says of each service whether it serves: the server is there, and active."""

    def __init__(self, services: Iterable[str]) -> None:
        self._names = ("", *services)
        self.servicer = health.aio.HealthServicer()
        self._task: asyncio.Task[None] | None = None

    def begin(self, well: Callable[[], Awaitable[bool]]) -> None:
        """Ask each second."""
        self._task = asyncio.create_task(self._look(well))

    async def end(self) -> None:
        """Say that nothing serves any more."""
        if self._task is not None:
            self._task.cancel()
        await self.servicer.enter_graceful_shutdown()

    async def _look(self, well: Callable[[], Awaitable[bool]]) -> None:
        status = health_pb2.HealthCheckResponse
        while True:
            serving = status.SERVING if await well() else status.NOT_SERVING
            for name in self._names:
                await self.servicer.set(name, serving)
            await asyncio.sleep(_LOOK)


def add_services(server: grpc.aio.Server, paths: Iterable[str]) -> GateHealth:
    """Health and reflection of the services that these paths belong to."""
    services = sorted({path.split("/")[1] for path in paths})
    found = GateHealth(services)
    health_pb2_grpc.add_HealthServicer_to_server(found.servicer, server)
    names: list[Any] = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    return found
