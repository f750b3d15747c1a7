"""What the server itself looks at: for its page, its history and its metrics.

Nothing here asks who looks. Whoever shows some of it to a caller leaves out what the caller may not
know of.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from podwright.controller.calls._call_context import Services
from podwright.controller.state._change_feed import ChangeFeed
from podwright.controller.state._pod_summary import PodSummary
from podwright.wire import ReadyState

OWNERS_SHOWN: Final = 20  #: owners of whom it is told how much they have, those with most


class PartitionFacts(NamedTuple):
    """What is kept of a partition for later. created, until: seconds since 1970."""

    owner: str
    job: str
    allocation: str
    created: int
    until: int
    state: str


class PodObserver:
    """Looks at a controller's state. summary: the pod by link domain.

    partition_feed: which partitions changed, by name.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._state = services.state
        self.summary = PodSummary(services.state)

    @property
    def partition_feed(self) -> ChangeFeed:
        """Which partitions changed, by name."""
        return self._state.partitions.feed

    @property
    def device_count(self) -> int:
        """How many devices there are."""
        clusters = self._state.inventory.clusters.values()
        return sum(cluster.layout.size for cluster in clusters)

    def definitions(self) -> dict[str, int]:
        """By cluster, a number that is another for each definition of it."""
        clusters = self._state.inventory.clusters
        return {name: cluster.definition for name, cluster in clusters.items()}

    def clusters(self) -> dict[str, dict[str, Any]]:
        """Family, size, sizes of link domains and whether it is simulated, by cluster."""
        return {
            name: {
                "family": cluster.layout.family.name,
                "size": cluster.layout.size,
                "domains": [len(refs) for refs in cluster.refs],
                "simulated": cluster.layout.simulated,
            }
            for name, cluster in self._state.inventory.clusters.items()
        }

    def partition(self, name: str) -> PartitionFacts | None:
        """A partition; None: there is none of this name."""
        entry = self._state.partitions.get(name)
        record = entry.record if entry is not None else None
        if record is None:
            return None
        return PartitionFacts(
            record.owner,
            record.job,
            record.allocation,
            round(record.created_at),
            round(record.until),
            record.ready.value,
        )

    def partition_names(self) -> Iterator[str]:
        """The names of all partitions, in order. They may come and go meanwhile."""
        return self._state.partitions.names.after("")

    @property
    def broken(self) -> list[str]:
        """The names of partitions in error, in order."""
        return sorted(self._state.partitions.broken)

    @property
    def fenced(self) -> list[str]:
        """The names of partitions with fences, in order."""
        return sorted({entry.name for entry in self._state.fences.values()})

    def machine_attributes(self) -> list[tuple[Mapping[str, str], ...]]:
        """The attributes of devices, a machine at a time, where drivers measure something."""
        return [
            attributes
            for cluster in self._state.inventory.clusters.values()
            for machine in cluster.measuring
            if (attributes := cluster.attributes.get(machine))
        ]

    def size_fits(
        self, may_use: Callable[[str], bool] = lambda _: True
    ) -> dict[str, tuple[int, list[tuple[int, int, int]]]]:
        """By cluster, how many devices are free, and of each size: the size, how many such blocks
        fit, free devices outside all of them. may_use: the allocations that count."""
        found = {}
        for name in self.summary.domains:
            if name in self._state.inventory.clusters:
                free, sizes = self.summary.fits(name, may_use)
                found[name] = (free, [tuple(size) for size in sizes])
        return found

    @property
    def partition_states(self) -> Counter[tuple[str, str]]:
        """How many partitions there are, by cluster and ready state."""
        return self._state.partitions.states

    @property
    def failed(self) -> int:
        """How many partitions are in error."""
        states = self._state.partitions.states.items()
        return sum(count for (_, state), count in states if state == ReadyState.ERROR.value)

    def lease_states(self) -> Counter[tuple[str, str]]:
        """How many leases there are, by cluster and state, those that left a fence among them."""
        partitions, states = self._state.partitions, Counter(self._state.leases_by_cluster)
        for entry in self._state.fences.values():
            if entry.cluster is not None:
                states[entry.cluster.layout.name, "FENCING"] += 1
        return states

    def largest_owners(self) -> list[tuple[str, int, int]]:
        """Owners with most devices: the name, devices, partitions."""
        owned = (
            (owner, used.devices, used.partitions)
            for owner, used in self._state.partitions.owned().items()
        )
        return heapq.nsmallest(OWNERS_SHOWN, owned, key=lambda one: (-one[1], one[0]))

    def machine_states(self) -> tuple[Counter[tuple[str, str]], list[tuple[str, str]]]:
        """How many machines have which state, by cluster and state; and cluster and name of those
        that are down."""
        states: Counter[tuple[str, str]] = Counter()
        down = []
        for name, cluster in self._state.inventory.clusters.items():
            silent = [machine for machine in self._state.down if machine in cluster.places]
            states[name, "DOWN"] = len(silent)
            states[name, "DRAINED"] = len(cluster.drained.difference(silent))
            states[name, "UP"] = len(cluster.places) - len(cluster.drained.union(silent))
            down += [(name, machine) for machine in sorted(silent)]
        return states, down

    @property
    def waiting(self) -> int:
        """How many requests wait for devices."""
        return len(self._services.waiting)
