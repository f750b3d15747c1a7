"""The server's metrics in Prometheus' text format. Names are our choice; units are Prometheus'.

They are gathered at most once in a few seconds, page by page, and formatted in a thread. A scrape
waits for them, and no call waits for a scrape. The first scrape imports prometheus_client.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from podwright._version import __version__
from podwright.errors import Unavailable
from podwright.http import metrics_text
from podwright.server._call_counts import BOUNDS, Figures

if TYPE_CHECKING:
    from prometheus_client import Metric

#: Seconds for which gathered metrics are reused.
FRESH = 5.0
_LISTS = (
    *("ListClusters", "ListDevices", "ListPartitions"),
    *("ListLeases", "ListAgents", "ListWaiters"),
)
KIND = "text/plain; version=0.0.4; charset=utf-8"
#: A gauge: its name without the prefix, its description, labels, and the value.
Gauge = tuple[str, str, Mapping[str, str], float]


class Metrics:
    """The metrics of a server.

    figures: of the calls. totals: returns other counters. now: returns the gauges.
    ended_connections: returns the connections that the server ended or did not accept, by listener
    and reason. lists: returns one of the server's lists, whole; raises wire.PodwrightError. pod:
    the label `pod` of each metric; empty: none. clock: seconds, never backwards.
    """

    def __init__(
        self,
        figures: Figures,
        totals: Callable[[], Mapping[str, int]],
        now: Callable[[], Iterable[Gauge]],
        ended_connections: Callable[[], Mapping[tuple[str, str], int]],
        lists: Callable[[str], Awaitable[Any]],
        *,
        pod: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures, self._totals, self._now, self._lists = figures, totals, now, lists
        self._ended_connections = ended_connections
        self._pod, self._clock = pod, clock
        self._text = b""
        self._until = 0.0
        self._gathering: asyncio.Task[None] | None = None

    async def text(self) -> bytes:
        """Return all metrics. Raises wire.PodwrightError when the server cannot answer."""
        if self._clock() >= self._until:
            if self._gathering is None or self._gathering.done():
                self._gathering = asyncio.create_task(self._gather())
            await asyncio.shield(self._gathering)
        return self._text

    async def _gather(self) -> None:
        await asyncio.to_thread(importlib.import_module, "prometheus_client.core")
        families = [*self._calls(), *self._moment()]
        listed: Sequence[Any] = ()
        with contextlib.suppress(Unavailable):  # a standby has no more metrics
            listed = [await self._lists(method) for method in _LISTS]
        self._text = await asyncio.to_thread(_written, families, listed, self._pod)
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
        connections_ended = CounterMetricFamily(
            "podwright_connections_ended",
            "Connections that the server ended, or did not take.",
            labels=["door", "reason"],
        )
        for labels, count in sorted(self._ended_connections().items()):
            connections_ended.add_metric(labels, count)
        yield connections_ended
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


def pod_name(storage: Path | str, host: str) -> str:
    """Return the label `pod` where no option sets it: it tells this server's store from others.

    A server and its standbys share a database and therefore a name, `HOST/DATABASE`. A file belongs
    to one host and has the name of that host. host: this host's name.
    """
    if isinstance(storage, Path) or "://" not in storage:
        return host
    place = urlsplit(storage)
    return f"{place.netloc.rpartition('@')[2] or host}/{place.path.strip('/')}".rstrip("/")


def _written(metrics: Sequence[Metric], listed: Sequence[Any], pod: str = "") -> bytes:
    """Format metrics. It runs in a thread, since 16,384 devices would delay every call."""
    families = [*metrics, *(_things(*listed) if listed else ())]
    return metrics_text(families, {"pod": pod} if pod else {})


def _things(*listed: Any) -> list[Metric]:
    """Return the metrics that are counted from the lists."""
    clusters = listed[0].clusters
    devices, partitions = listed[1].devices, listed[2].partitions
    leases, agents, waiters = listed[3].leases, listed[4].agents, listed[5].waiters
    cluster_of = {info.name: info.cluster for info in partitions}
    counts: Counter[tuple[str, ...]] = Counter(
        (cluster_of.get(lease.partition, ""), lease.state) for lease in leases
    )
    return [
        _gauge("clusters", "Clusters.", (), Counter({(): len(clusters)})),
        _gauge(
            "devices",
            "Devices by what they are doing.",
            ("cluster", "machine", "state"),
            Counter((info.cluster, info.device.machine, info.state) for info in devices),
        ),
        _gauge(
            "partitions",
            "Partitions by their ready state.",
            ("cluster", "state"),
            Counter((info.cluster, info.ready_state.value) for info in partitions),
        ),
        _gauge("leases", "Leases; FENCING: over, not yet safe.", ("cluster", "state"), counts),
        _gauge("waiters", "Requests that wait for devices.", (), Counter({(): len(waiters)})),
        _gauge(
            "machine_up",
            "Whether a machine's agent answers and has the hardware it registered.",
            ("cluster", "machine"),
            {(agent.cluster, agent.name): int(agent.state == "UP") for agent in agents},
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
