"""/metrics, /healthz and probes of a daemon that serves nothing else over HTTP on TCP.

The metrics are values that the daemon counts anyway. prometheus_client formats them; the first
scrape imports it. The front reads only the path, and stays on loopback unless told otherwise.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from podwright.http._http_server import HttpServer
from podwright.http._listener_state import HttpRequest, Limits, Reply

if TYPE_CHECKING:
    from prometheus_client import Metric

METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METRICS_FRESH_S = 2.0  #: seconds for which metrics are reused
_METRICS_LISTENER_LIMITS = Limits(
    connections=128, each=64, idle=10.0, body=0, all_bodies=1, patience=0.0
)


class Figure(NamedTuple):
    """One value. name: without `podwright_`. total: it only grows. labels: by name, in order."""

    name: str
    words: str
    value: float
    labels: Mapping[str, str] = {}
    total: bool = False


class MetricsFront(HttpServer):
    """Serves metrics. figures: returns them; called at most once in `METRICS_FRESH_S` seconds.

    probes: by path, what returns the problem for which the probe fails, or "". clock: seconds,
    never backwards.
    """

    other_port = "another port for metrics"

    def __init__(
        self,
        figures: Callable[[], Awaitable[Iterable[Figure]]],
        *,
        probes: Mapping[str, Callable[[], str]] = {},
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._answer, _METRICS_LISTENER_LIMITS)
        self._figures, self._probes, self._clock = figures, probes, clock
        self._text, self._until = b"", -math.inf
        self._one_at_a_time = asyncio.Lock()

    async def _answer(self, request: HttpRequest) -> Reply:
        close_header = ((b"connection", b"close"),)
        if request.method not in ("GET", "HEAD"):
            return Reply(405, b"it is to be read only\n", "text/plain", close_header)
        if request.path == "/healthz":
            return Reply(200, b'{"status":"ok"}', headers=close_header)
        if request.path == "/metrics":
            return Reply(200, await self._now(), METRICS_CONTENT_TYPE, close_header)
        if probe := self._probes.get(request.path):
            probe_problem = probe()
            return Reply(
                503 if probe_problem else 200,
                (probe_problem or "ok\n").encode(),
                "text/plain",
                close_header,
            )
        return Reply(404, b"there are /metrics and /healthz\n", "text/plain", close_header)

    async def _now(self) -> bytes:
        async with self._one_at_a_time:
            if self._clock() >= self._until:
                self._text = text(await self._figures())
                self._until = self._clock() + METRICS_FRESH_S
            return self._text


def text(figures: Iterable[Figure]) -> bytes:
    """Return metrics, and those of this process, in Prometheus' text format."""
    return metrics_text(families(figures))


def metrics_text(metric_families: Iterable[Metric], labels: Mapping[str, str] = {}) -> bytes:
    """Return gathered families and the metrics of this process in Prometheus' text format.

    labels: added to each sample.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    all_families = [*metric_families, *ProcessCollector(registry=None).collect()]
    for family in all_families:
        family.samples = [
            sample._replace(labels={**sample.labels, **labels}) for sample in family.samples
        ]
    registry = CollectorRegistry()
    registry.register(_GatheredCollector(all_families))
    return generate_latest(registry)


def families(figures: Iterable[Figure]) -> list[Metric]:
    """Return the metrics grouped by name."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    families_by_name: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for figure in figures:
        family = families_by_name.get(figure.name)
        if family is None:
            family_class = CounterMetricFamily if figure.total else GaugeMetricFamily
            label_names = list(figure.labels)
            family = families_by_name[figure.name] = family_class(
                f"podwright_{figure.name}", figure.words, labels=label_names
            )
        family.add_metric(list(figure.labels.values()), figure.value)
    return list(families_by_name.values())


class _GatheredCollector:
    """A collector of families that are already gathered."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """Return all families."""
        return self._families

    def describe(self) -> list[Metric]:
        """Return nothing: the registry holds only this collector, so no names can clash."""
        return []
