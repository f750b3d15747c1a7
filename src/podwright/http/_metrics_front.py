"""/metrics and /healthz of a daemon that has nothing else to say over HTTP on TCP.

Figures are what its owner counts anyway; prometheus_client writes them, imported by the first
scrape. It reads nothing but the path, and stays on loopback unless told otherwise.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from podwright.http._http_server import HttpServer
from podwright.http._listener import HttpRequest, Limits, Reply

if TYPE_CHECKING:
    from prometheus_client import Metric

KIND = "text/plain; version=0.0.4; charset=utf-8"
FRESH = 2.0  #: seconds for which figures are good
_LIMITS = Limits(connections=128, each=64, idle=10.0, body=0, held=1, patience=0.0)


class Figure(NamedTuple):
    """One value. name: without `podwright_`. total: it only grows. labels: by name, in order."""

    name: str
    words: str
    value: float
    labels: Mapping[str, str] = {}
    total: bool = False


class MetricsFront:
    """Serves figures. figures: what they are now; asked for once in `FRESH` seconds at most.

    clock: seconds, never backwards.
    """

    def __init__(
        self,
        figures: Callable[[], Awaitable[Iterable[Figure]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures, self._clock = figures, clock
        self._server = HttpServer(self._answer, _LIMITS)
        self._text, self._until = b"", -math.inf
        self._one_at_a_time = asyncio.Lock()

    async def start(self, host: str, port: int) -> int:
        """Answer at this address; port 0 takes a free one. Returns the port.

        Raises Unavailable when the address cannot be had.
        """
        return await self._server.open(host, port, "another port for metrics")

    async def stop(self) -> None:
        """Accept no more."""
        await self._server.stop(1.0)

    async def _answer(self, request: HttpRequest) -> Reply:
        close = ((b"connection", b"close"),)
        if request.method not in ("GET", "HEAD"):
            return Reply(405, b"it is to be read only\n", "text/plain", close)
        if request.path == "/healthz":
            return Reply(200, b'{"status":"ok"}', headers=close)
        if request.path == "/metrics":
            return Reply(200, await self._now(), KIND, close)
        return Reply(404, b"there are /metrics and /healthz\n", "text/plain", close)

    async def _now(self) -> bytes:
        async with self._one_at_a_time:
            if self._clock() >= self._until:
                self._text = text(await self._figures())
                self._until = self._clock() + FRESH
            return self._text


def text(figures: Iterable[Figure]) -> bytes:
    """Figures and those of this process, in Prometheus' text."""
    return metrics_text(families(figures))


def metrics_text(gathered: list[Metric]) -> bytes:
    """Families that were gathered, and the figures of this process, in Prometheus' text."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Ready(gathered))
    return generate_latest(registry)


def families(figures: Iterable[Figure]) -> list[Metric]:
    """Figures of one name together."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for figure in figures:
        family = found.get(figure.name)
        if family is None:
            kind = CounterMetricFamily if figure.total else GaugeMetricFamily
            labels = list(figure.labels)
            family = found[figure.name] = kind(
                f"podwright_{figure.name}", figure.words, labels=labels
            )
        family.add_metric(list(figure.labels.values()), figure.value)
    return list(found.values())


class _Ready:
    """Families that are gathered already, as a collector."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """All of them."""
        return self._families

    def describe(self) -> list[Metric]:
        """Nothing to check: a registry holds these alone."""
        return []
