"""The services that gRPC's own tools use: grpc.health.v1, and reflection, as for grpcurl."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

_HEALTH_POLL_PERIOD_S = 1.0


class GateHealth:
    """Reports the health of each service: SERVING while the server answers and is active."""

    def __init__(self, services: Iterable[str]) -> None:
        self._names = ("", *services)
        self.servicer = health.aio.HealthServicer()
        self._task: asyncio.Task[None] | None = None

    def begin(self, is_serving: Callable[[], Awaitable[bool]]) -> None:
        """Start asking the server each second."""
        self._task = asyncio.create_task(self._poll_server_health(is_serving))

    async def end(self) -> None:
        """Report NOT_SERVING for all services."""
        if self._task is not None:
            self._task.cancel()
        await self.servicer.enter_graceful_shutdown()

    async def _poll_server_health(self, is_serving: Callable[[], Awaitable[bool]]) -> None:
        response_type = health_pb2.HealthCheckResponse
        while True:
            status = response_type.SERVING if await is_serving() else response_type.NOT_SERVING
            for name in self._names:
                await self.servicer.set(name, status)
            await asyncio.sleep(_HEALTH_POLL_PERIOD_S)


def add_services(server: grpc.aio.Server, method_paths: Iterable[str]) -> GateHealth:
    """Add health and reflection of the services that these paths belong to."""
    services = sorted({path.split("/")[1] for path in method_paths})
    gate_health = GateHealth(services)
    health_pb2_grpc.add_HealthServicer_to_server(gate_health.servicer, server)
    names: list[Any] = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    return gate_health
