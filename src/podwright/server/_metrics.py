"""The server's metrics in Prometheus' text format. Names are our choice; units are Prometheus'.

They are counters that are kept anyway, so a scrape costs the same however many partitions there
are: there is no series of a partition, and of machines only of those that are down. They are
gathered at most once in a few seconds and formatted in a thread. The first scrape imports
prometheus_client.
"""

from __future__ import annotations

import asyncio
import importlib
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from podwright._version import __version__
from podwright.controller import PodObserver
from podwright.http import Figure, families, metrics_text
from podwright.server._call_counts import DURATION_BOUNDS_S, CallCounts

if TYPE_CHECKING:
    from prometheus_client import Metric

#: Seconds for which gathered metrics are reused.
METRICS_MAX_AGE_S = 5.0


class Metrics:
    """The metrics of a server.

    call_counts: of the calls. read_totals: returns other counters. read_gauges: returns the gauges.
    ended_connections: returns the connections that the server ended or did not accept, by listener
    and reason. observe: returns what looks at the pod; None: this server stands by. name_owners:
    returns whether anybody may know who has how much. pod_label: the label `pod` of each metric;
    empty: none. clock: seconds, never backwards.
    """

    def __init__(
        self,
        call_counts: CallCounts,
        read_totals: Callable[[], Mapping[str, int]],
        read_gauges: Callable[[], Iterable[Figure]],
        ended_connections: Callable[[], Mapping[tuple[str, str], int]],
        observe: Callable[[], PodObserver | None],
        name_owners: Callable[[], bool],
        *,
        pod_label: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._figures, self._totals, self._now = call_counts, read_totals, read_gauges
        self._observe, self._name_owners = observe, name_owners
        self._ended_connections = ended_connections
        self._pod, self._clock = pod_label, clock
        self._text = b""
        self._until = 0.0
        self._gathering: asyncio.Task[None] | None = None

    async def text(self) -> bytes:
        """Return all metrics."""
        if self._clock() >= self._until:
            if self._gathering is None or self._gathering.done():
                self._gathering = asyncio.create_task(self._gather_metrics())
            await asyncio.shield(self._gathering)
        return self._text

    async def _gather_metrics(self) -> None:
        await asyncio.to_thread(importlib.import_module, "prometheus_client.core")
        metrics = [*self._calls(), *self._moment()]
        if (observer := self._observe()) is not None:  # a standby has no more metrics
            await observer.summary.refresh()
            metrics += _pod_metrics(observer, name_owners=self._name_owners())
        labels = {"pod": self._pod} if self._pod else {}
        self._text = await asyncio.to_thread(metrics_text, metrics, labels)
        self._until = self._clock() + METRICS_MAX_AGE_S

    def _calls(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        duration_histogram = HistogramMetricFamily(
            "podwright_call_duration_seconds", "How long calls took.", labels=["method"]
        )
        for method, (bucket_counts, seconds_sum) in sorted(self._figures.times.items()):
            cumulative_count, buckets = 0, []
            for bound, count in zip((*DURATION_BOUNDS_S, "+Inf"), bucket_counts, strict=True):
                cumulative_count += count
                buckets.append((str(bound), float(cumulative_count)))
            duration_histogram.add_metric([method], buckets, seconds_sum[0])
        yield duration_histogram
        error_counter = CounterMetricFamily(
            "podwright_errors", "Calls that were refused or failed.", labels=["code"]
        )
        for code, count in sorted(self._figures.codes.items()):
            error_counter.add_metric([code], count)
        yield error_counter
        connections_ended = CounterMetricFamily(
            "podwright_connections_ended",
            "Connections that the server ended, or did not take.",
            labels=["door", "reason"],
        )
        for listener_and_reason, count in sorted(self._ended_connections().items()):
            connections_ended.add_metric(listener_and_reason, count)
        yield connections_ended
        yield from families(
            Figure(name, f"How many {name}, in all.", count, total=True)
            for name, count in sorted(self._totals().items())
        )

    def _moment(self) -> Iterable[Metric]:
        from prometheus_client.core import InfoMetricFamily

        info = InfoMetricFamily("podwright_build", "What runs here.")
        info.add_metric([], {"version": __version__, "python": platform.python_version()})
        yield info
        yield from families(self._now())


def pod_name(storage: Path | str, host: str) -> str:
    """Return the label `pod` where no option sets it: it tells this server's store from others.

    A server and its standbys share a database and therefore a name, `HOST/DATABASE`. A file belongs
    to one host and has the name of that host. host: this host's name.
    """
    if isinstance(storage, Path) or "://" not in storage:
        return host
    url = urlsplit(storage)
    return f"{url.netloc.rpartition('@')[2] or host}/{url.path.strip('/')}".rstrip("/")


def _pod_metrics(observer: PodObserver, *, name_owners: bool) -> list[Metric]:
    """Return the metrics of the pod."""
    machine_states, down_machines = observer.machine_states()
    metrics = [
        _counted_gauge("clusters", "Clusters.", (), {(): len(observer.definitions())}),
        _counted_gauge(
            "devices",
            "Devices by what they are doing.",
            ("cluster", "state"),
            observer.summary.states,
        ),
        _counted_gauge(
            "partitions",
            "Partitions by their ready state.",
            ("cluster", "state"),
            observer.partition_states,
        ),
        _counted_gauge(
            "leases",
            "Leases; FENCING: over, not yet safe.",
            ("cluster", "state"),
            observer.lease_states(),
        ),
        _counted_gauge("waiters", "Requests that wait for devices.", (), {(): observer.waiting}),
        _counted_gauge(
            "machines",
            "Machines. UP: in service; DRAINED: takes nothing new; DOWN: does not answer.",
            ("cluster", "state"),
            machine_states,
        ),
        _counted_gauge(
            "machine_down",
            "1: this machine does not answer, or has other hardware than it registered.",
            ("cluster", "machine"),
            dict.fromkeys(down_machines, 1),
        ),
    ]
    if name_owners:
        owners = observer.largest_owners()
        metrics += [
            _counted_gauge(
                "owner_devices",
                "Devices of the owners with most.",
                ("owner",),
                {(owner,): devices for owner, devices, _ in owners},
            ),
            _counted_gauge(
                "owner_partitions",
                "Partitions of the owners with most devices.",
                ("owner",),
                {(owner,): partitions for owner, _, partitions in owners},
            ),
        ]
    return metrics


def _counted_gauge(
    gauge_name: str,
    description: str,
    label_names: tuple[str, ...],
    counts_by_labels: Mapping[Any, int],
) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"podwright_{gauge_name}", description, labels=label_names)
    for values, count in sorted(counts_by_labels.items()):
        family.add_metric(values, count)
    return family
