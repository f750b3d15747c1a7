"""The server's figures in Prometheus' text. Names are our choice; units are Prometheus'.

They are gathered at most once in a few seconds, page by page, and written down beside the loop: a
scrape waits for them, nobody waits for a scrape. prometheus_client is imported by the first one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podwright._version import __version__
from podwright.errors import Unavailable
from podwright.http import metrics_text
from podwright.server._call_counts import BOUNDS, Figures

if TYPE_CHECKING:
    from prometheus_client import Metric

#: Seconds for which gathered figures are good.
FRESH = 5.0
_LISTS = (
    *("ListClusters", "ListDevices", "ListPartitions"),
    *("ListLeases", "ListAgents", "ListWaiters"),
)
KIND = "text/plain; version=0.0.4; charset=utf-8"
#: A name without its prefix, its words, labels, and the value.
Gauge = tuple[str, str, Mapping[str, str], float]


class Metrics:
    """figures: of the calls. totals: other counters. now: what is so at this moment, by gauge.

    ended: connections that the server ended or did not take, by door and why.
    lists: asks for one of the server's lists, whole. Raises wire.PodwrightError.
    clock: seconds, never backwards.
    """

    def __init__(
        self,
        figures: Figures,
        totals: Callable[[], Mapping[str, int]],
        now: Callable[[], Iterable[Gauge]],
        ended: Callable[[], Mapping[tuple[str, str], int]],
        lists: Callable[[str], Awaitable[Any]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures, self._totals, self._now, self._lists = figures, totals, now, lists
        self._ended = ended
        self._clock = clock
        self._text = b""
        self._until = 0.0
        self._gathering: asyncio.Task[None] | None = None

    async def text(self) -> bytes:
        """All of them. Raises wire.PodwrightError when the server cannot say."""
        if self._clock() >= self._until:
            if self._gathering is None or self._gathering.done():
                self._gathering = asyncio.create_task(self._gather())
            await asyncio.shield(self._gathering)
        return self._text

    async def _gather(self) -> None:
        await asyncio.to_thread(importlib.import_module, "prometheus_client.core")
        found = [*self._calls(), *self._moment()]
        listed: Sequence[Any] = ()
        with contextlib.suppress(Unavailable):  # one that stands by knows no more
            listed = [await self._lists(method) for method in _LISTS]
        self._text = await asyncio.to_thread(_written, found, listed)
        self._until = self._clock() + FRESH

    def _calls(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        times = HistogramMetricFamily(
            "podwright_call_duration_seconds", "How long calls took.", labels=["method"]
        )
        for method, (counts, total) in sorted(self._figures.times.items()):
            below, buckets = 0, []
            for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True):
                below += count
                buckets.append((str(bound), float(below)))
            times.add_metric([method], buckets, total[0])
        yield times
        errors = CounterMetricFamily(
            "podwright_errors", "Calls that were refused or failed.", labels=["code"]
        )
        for code, count in sorted(self._figures.codes.items()):
            errors.add_metric([code], count)
        yield errors
        ended = CounterMetricFamily(
            "podwright_connections_ended",
            "Connections that the server ended, or did not take.",
            labels=["door", "reason"],
        )
        for labels, count in sorted(self._ended().items()):
            ended.add_metric(labels, count)
        yield ended
        for name, count in sorted(self._totals().items()):
            yield CounterMetricFamily(f"podwright_{name}", f"How many {name}, in all.", count)

    def _moment(self) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        build = InfoMetricFamily("podwright_build", "What runs here.")
        build.add_metric([], {"version": __version__, "python": platform.python_version()})
        yield build
        families: dict[str, GaugeMetricFamily] = {}
        for name, words, labels, value in self._now():
            family = families.get(name)
            if family is None:
                family = families[name] = GaugeMetricFamily(
                    f"podwright_{name}", words, labels=list(labels)
                )
            family.add_metric(list(labels.values()), value)
        yield from families.values()


def _written(found: Sequence[Metric], listed: Sequence[Any]) -> bytes:
    """In a thread: counting 16,384 devices and writing it down would hold everybody up."""
    return metrics_text([*found, *(_things(*listed) if listed else ())])


def _things(*listed: Any) -> list[Metric]:
    """What the lists say, in numbers."""
    clusters = listed[0].clusters
    devices, partitions = listed[1].devices, listed[2].partitions
    leases, agents, waiters = listed[3].leases, listed[4].agents, listed[5].waiters
    cluster_of = {info.name: info.cluster for info in partitions}
    held: Counter[tuple[str, ...]] = Counter(
        (cluster_of.get(lease.partition, ""), lease.state) for lease in leases
    )
    return [
        _gauge("clusters", "Clusters.", (), Counter({(): len(clusters)})),
        _gauge(
            "devices",
            "Devices by what they are doing.",
            ("cluster", "machine", "state"),
            Counter((d.cluster, d.device.machine, d.state) for d in devices),
        ),
        _gauge(
            "partitions",
            "Partitions by their ready state.",
            ("cluster", "state"),
            Counter((p.cluster, p.ready_state.value) for p in partitions),
        ),
        _gauge("leases", "Leases; FENCING: over, not yet safe.", ("cluster", "state"), held),
        _gauge("waiters", "Requests that wait for devices.", (), Counter({(): len(waiters)})),
        _gauge(
            "machine_up",
            "Whether a machine's agent answers and has the hardware it registered.",
            ("cluster", "machine"),
            {(a.cluster, a.name): int(a.state == "UP") for a in agents},
        ),
    ]


def _gauge(
    name: str, words: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], int]
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"podwright_{name}", words, labels=labels)
    for texts, count in sorted(values.items()):
        family.add_metric(texts, count)
    return family
