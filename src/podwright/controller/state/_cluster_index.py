"""Clusters as the controller keeps them: their index, and where each device answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy

from podwright.agents import MachineReport
from podwright.errors import InvalidRequest, NotFound
from podwright.fabric import Cluster
from podwright.placement import Block, Index, NodeIndex, index_of
from podwright.wire import DeviceRef


class IndexedCluster:
    """One cluster. layout: its link domains and machines.

    refs[domain][offset] is the device as partitions show it.
    """

    def __init__(self, layout: Cluster, allocations: Mapping[str, Sequence[str]]) -> None:
        self.layout = layout
        self.index = index_of(layout)
        self.allocations: dict[str, list[str]] = {}
        for name, machines in allocations.items():
            self.index.define_allocation(name, machines)
            self.allocations[name] = list(machines)
        if not self.allocations:
            self.allocations[layout.name] = self.machines()
        self._per_machine = layout.family.devices_per_machine
        self.drained: set[str] = set()
        self.attributes: dict[str, tuple[Mapping[str, str], ...]] = {}
        self.unhealthy: dict[str, frozenset[int]] = {}
        self.closed: dict[str, str] = {}  #: allocation -> the scheduler who alone creates in it
        self.owned: dict[str, str] = {}  #: allocation -> the user for whose job it was made
        #: What its last test found of its cables: machine and problem.
        self.miscabled: list[tuple[str, str]] = []
        self._lay_out()

    def _lay_out(self) -> None:
        """Names and places of machines, and devices of which nothing is known yet."""
        layout = self.layout
        self._names = [[m.name for m in d.machines] for d in layout.domains]
        self.places = {
            name: (d, i) for d, names in enumerate(self._names) for i, name in enumerate(names)
        }
        self.refs = [
            [
                DeviceRef(
                    domain=d,
                    offset=offset,
                    machine=self._names[d][offset // self._per_machine],
                    index=offset % self._per_machine,
                )
                for offset in range(layout.domain_size(d))
            ]
            for d in range(len(layout.domains))
        ]

    def redefined(
        self, layout: Cluster, machines: Mapping[str, Sequence[str]]
    ) -> NodeIndex | Index:
        """An index of the cluster as it is to be, in which all is taken that is taken now.

        machines: of each allocation; none: one for all. Raises ValueError for what has no place
        there.
        """
        index = index_of(layout)
        for name, machine_names in machines.items():
            index.define_allocation(name, machine_names)
        for placement in self.index.placements():
            index.take(placement)
        return index

    def redefine(
        self, layout: Cluster, index: NodeIndex | Index, machines: Mapping[str, Sequence[str]]
    ) -> None:
        """Replace the cluster; machines that stay keep their place."""
        before = {
            name: self.refs[d][i * self._per_machine :] for name, (d, i) in self.places.items()
        }
        self.layout, self.index = layout, index
        self._lay_out()
        for name, (domain, place) in self.places.items():
            first = place * self._per_machine
            if name in before:
                self.refs[domain][first : first + self._per_machine] = before[name][
                    : self._per_machine
                ]
        self.allocations = {
            name: list(machine_names) for name, machine_names in machines.items()
        } or {layout.name: self.machines()}
        for table in (self.attributes, self.unhealthy):
            for name in table.keys() - self.places.keys():
                del table[name]
        self.drained &= self.places.keys()
        for name in self.attributes:
            self._shape(name)

    def as_it_was(self) -> Callable[[], None]:
        """A function that restores the cluster as it is now, with the devices taken by then."""
        own = {name: copy(attribute) for name, attribute in vars(self).items() if name != "index"}
        machines_by_allocation = (
            {} if list(self.allocations) == [self.layout.name] else dict(self.allocations)
        )

        def restore() -> None:
            self.index = self.redefined(own["layout"], machines_by_allocation)
            vars(self).update(own)
            for name in self.attributes:
                self._shape(name)

        return restore

    def _shape(self, machine: str) -> None:
        """Tell the index which devices of a machine are unhealthy, and which are slices."""
        if isinstance(self.index, NodeIndex):
            self.index.avoid(machine, self.unhealthy[machine])
            numbered = enumerate(self.attributes[machine])
            profiles = {i: about.get("profile", "") for i, about in numbered}
            self.index.cut(machine, {i: profile for i, profile in profiles.items() if profile})

    def machines(self) -> list[str]:
        """All machines, in the order of domains and links."""
        return [m.name for d in self.layout.domains for m in d.machines]

    def learn(self, machine: str, report: MachineReport) -> None:
        """Take over what a machine reports of its devices."""
        domain, place = self.places[machine]
        first = place * self._per_machine
        for device in report.devices[: self._per_machine]:
            self.refs[domain][first + device.index] = DeviceRef(
                domain=domain,
                offset=first + device.index,
                machine=machine,
                index=device.index,
                ip=device.ip,
                server_port=device.server_port,
                rdma_port=device.rdma_port,
                arch_id=device.arch_id,
                chip_id=device.chip_id,
            )
        self.attributes[machine] = tuple(device.attributes for device in report.devices)
        self.unhealthy[machine] = frozenset(d.index for d in report.devices if not d.healthy)
        self._shape(machine)

    def parts(self, blocks: Sequence[Block]) -> dict[str, list[int]]:
        """Blocks as indices of devices in each machine."""
        per = self._per_machine
        out: dict[str, list[int]] = {}
        for domain, offset, size in blocks:
            names, end = self._names[domain], offset + size
            while offset < end:
                place, first = divmod(offset, per)
                count = min(per - first, end - offset)
                out.setdefault(names[place], []).extend(range(first, first + count))
                offset += count
        return out

    def blocks_by_machine(self, blocks: Sequence[Block]) -> list[tuple[str, Block]]:
        """Blocks cut at the edges of machines."""
        per = self._per_machine
        out = []
        for domain, offset, size in blocks:
            end = offset + size
            while offset < end:
                place, first = divmod(offset, per)
                count = min(per - first, end - offset)
                out.append((self._names[domain][place], Block(domain, offset, count)))
                offset += count
        return out

    def span(self, gcds: Sequence[Block], mask: int) -> list[Block]:
        """The devices of a partition whose bits are set in `mask`, in routing order."""
        out: list[Block] = []
        offset = 0
        for block in gcds:
            bits = mask >> offset & ((1 << block.size) - 1)
            if bits == (1 << block.size) - 1:
                out.append(block)
            elif bits:
                out.extend(
                    Block(block.domain, block.offset + i, 1)
                    for i in range(block.size)
                    if bits >> i & 1
                )
            offset += block.size
        return out


class ClusterIndex:
    """All clusters."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        allocations: Mapping[str, Mapping[str, Sequence[str]]],
    ) -> None:
        self.clusters = {c.name: IndexedCluster(c, allocations.get(c.name, {})) for c in clusters}
        self.by_machine = {
            name: cluster for cluster in self.clusters.values() for name in cluster.places
        }

    @property
    def noun(self) -> str:
        """What a device is called, for sentences about no cluster in particular."""
        nouns = {cluster.layout.family.device_noun for cluster in self.clusters.values()}
        return nouns.pop() if len(nouns) == 1 else "device"

    def candidates(self, cluster_name: str, allocation: str, action: str) -> list[IndexedCluster]:
        """The clusters in which the request may be placed, the best first. Raises NotFound or
        InvalidRequest for names that do not exist."""
        if cluster_name and cluster_name not in self.clusters:
            raise NotFound(
                f"there is no cluster {cluster_name}",
                operation=action,
                would_work=f"use {_names(list(self.clusters))}",
                cluster=cluster_name,
            )
        clusters = [self.clusters[cluster_name]] if cluster_name else list(self.clusters.values())
        if allocation:
            known = [name for cluster in clusters for name in cluster.allocations]
            clusters = [cluster for cluster in clusters if allocation in cluster.allocations]
            if not clusters:
                raise NotFound(
                    f"there is no allocation {allocation}"
                    + (f" in cluster {cluster_name}" if cluster_name else ""),
                    operation=action,
                    would_work=f"use {_names(known)}",
                    allocation=allocation,
                )
        if not clusters:
            raise InvalidRequest(
                "this server has no cluster", operation=action, would_work="define one"
            )
        return clusters


def _names(names: Sequence[str]) -> str:
    listed = list(names[:5])
    more = f" (and {len(names) - 5} more)" if len(names) > 5 else ""
    return (" or ".join(listed) or "another server") + more
