"""What a pod is like, by link domain: kept up to date at the cost of what has changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from podwright.controller.state._change_feed import ChangeFeed
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._domain_view import STATES, ClaimedBlocks, view_domain
from podwright.placement.fragmentation import SizeFit, block_counts, size_fits

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState

_SLICE: Final = 16  #: link domains that are looked at in one turn of the loop


class DomainSummary(NamedTuple):
    """A link domain in numbers.

    counts: of its devices, by state, in the order of STATES. kept: of its devices that are kept,
    by whom they are kept for. free: of its free devices, by allocation. blocks: how many blocks of
    2 ** order fit, by allocation and order.
    """

    counts: tuple[int, ...]
    kept: dict[str, int]
    free: dict[str, int]
    blocks: dict[tuple[str, int], int]


class PodSummary:
    """All link domains in numbers, as of the last `refresh`.

    domains: by cluster, then by the domain's place in it. states: sums, by cluster and state.
    feed: which link domains changed, as `cluster/domain`.
    """

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._refreshing = asyncio.Lock()
        self._claimed = ClaimedBlocks(state)
        self._definitions: dict[str, int] = {}
        self._free: Counter[tuple[str, str]] = Counter()
        self._blocks: dict[str, Counter[tuple[str, int]]] = {}
        self.domains: dict[str, dict[int, DomainSummary]] = {}
        self.states: Counter[tuple[str, str]] = Counter()
        self.kept: dict[str, Counter[str]] = {}
        self.feed = ChangeFeed()

    async def refresh(self) -> None:
        """Look at what has changed. Other work goes on between parts of it."""
        async with self._refreshing:
            self._notice_definitions()
            claimed, clusters = ClaimedBlocks(self._state), self._state.inventory.clusters
            for name, domain in claimed.changed_since(self._claimed):
                if name in clusters:
                    clusters[name].touched.add(domain)
            self._claimed = claimed
            for cluster in list(clusters.values()):
                while cluster.touched and self._is_current(cluster):
                    for _ in range(min(_SLICE, len(cluster.touched))):
                        self._look_at(cluster, cluster.touched.pop())
                    await asyncio.sleep(0)

    def keys(self) -> list[str]:
        """All link domains, as `cluster/domain`, in order."""
        return [
            f"{name}/{domain}" for name, found in self.domains.items() for domain in sorted(found)
        ]

    def fits(self, cluster_name: str, may_use: Callable[[str], bool]) -> tuple[int, list[SizeFit]]:
        """Free devices of a cluster, and which sizes fit there. may_use: the allocations that
        count."""
        family = self._state.inventory.clusters[cluster_name].layout.family
        free = sum(
            count
            for (name, allocation), count in self._free.items()
            if name == cluster_name and may_use(allocation)
        )
        by_order: Counter[int] = Counter()
        for (allocation, order), count in self._blocks.get(cluster_name, Counter()).items():
            if may_use(allocation):
                by_order[order] += count
        return free, size_fits(family, by_order, free)

    def counts(self, key: str) -> dict[str, int] | None:
        """How many devices of a link domain have which state. None: there is no such domain."""
        name, _, number = key.rpartition("/")
        summary = self.domains.get(name, {}).get(int(number))
        return None if summary is None else dict(zip(STATES, summary.counts, strict=True))

    def runs(self, key: str) -> list[tuple[tuple[str, str], int]] | None:
        """The states and partitions of a link domain's devices, in runs of equal ones. None: there
        is no such domain."""
        if (found := self._domain_of(key)) is None:
            return None
        view = view_domain(self._state, *found, self._claimed)
        pairs = groupby(zip(view.states, view.owners, strict=True))
        return [(pair, sum(1 for _ in run)) for pair, run in pairs]

    def machines(self, key: str) -> list[tuple[str, int]] | None:
        """The machines of a link domain with the number of their devices, in order. None: there is
        no such domain."""
        if (found := self._domain_of(key)) is None:
            return None
        cluster, domain = found
        per_machine = cluster.layout.family.devices_per_machine
        return [(machine.name, per_machine) for machine in cluster.layout.domains[domain].machines]

    def _domain_of(self, key: str) -> tuple[IndexedCluster, int] | None:
        name, _, number = key.rpartition("/")
        cluster = self._state.inventory.clusters.get(name)
        if cluster is None or not number.isdecimal() or int(number) >= len(cluster.refs):
            return None
        return cluster, int(number)

    def _is_current(self, cluster: IndexedCluster) -> bool:
        return self._definitions.get(cluster.layout.name) == cluster.definition

    def _notice_definitions(self) -> None:
        """Forget clusters that are gone, and those that were defined anew."""
        clusters = self._state.inventory.clusters
        for name in [*self._definitions]:
            if name not in clusters or not self._is_current(clusters[name]):
                for domain, summary in self.domains.pop(name).items():
                    self._add(name, summary, -1)
                    self.feed.touch(f"{name}/{domain}")
                del self._definitions[name]
        for name, cluster in clusters.items():
            if name not in self._definitions:
                self._definitions[name] = cluster.definition
                self.domains[name], self.kept[name] = {}, Counter()
                self._blocks[name] = Counter()
                cluster.touched.update(range(len(cluster.refs)))

    def _look_at(self, cluster: IndexedCluster, domain: int) -> None:
        name = cluster.layout.name
        if domain >= len(cluster.refs):
            return
        view = view_domain(self._state, cluster, domain, self._claimed)
        kept = Counter(view.kept.values())
        free_flags: dict[str, list[bool]] = {}
        for ref in cluster.refs[domain]:
            allocation = cluster.allocation_of(ref.machine)
            flags = free_flags.get(allocation)
            if flags is None:
                flags = free_flags[allocation] = [False] * len(view.states)
            flags[ref.offset] = bool(view.free >> ref.offset & 1)
        summary = DomainSummary(
            tuple(view.states.count(state) for state in STATES),
            dict(kept),
            {allocation: sum(flags) for allocation, flags in free_flags.items()},
            {
                (allocation, order): count
                for allocation, flags in free_flags.items()
                for order, count in block_counts(cluster.layout.family, flags).items()
            },
        )
        known = self.domains[name].get(domain)
        self.feed.touch(f"{name}/{domain}")
        if known != summary:
            if known is not None:
                self._add(name, known, -1)
            self._add(name, summary, 1)
            self.domains[name][domain] = summary

    def _add(self, cluster_name: str, summary: DomainSummary, sign: int) -> None:
        for state, count in zip(STATES, summary.counts, strict=True):
            self.states[cluster_name, state] += sign * count
        for allocation, count in summary.free.items():
            self._free[cluster_name, allocation] += sign * count
        blocks, kept = self._blocks[cluster_name], self.kept[cluster_name]
        for key, count in summary.blocks.items():
            blocks[key] += sign * count
        for whom, count in summary.kept.items():
            kept[whom] += sign * count
            if not kept[whom]:
                del kept[whom]
