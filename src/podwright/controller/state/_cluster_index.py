"""Clusters as the controller keeps them: their index, and where each device answers."""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping, Sequence
from copy import copy
from itertools import count
from typing import Any, Final, TypeVar, cast

from podwright.agents import MachineReport
from podwright.controller.state._records import DrainRecord
from podwright.errors import InvalidRequest, NotFound
from podwright.fabric import Cluster
from podwright.placement import Block, Index, NodeIndex, index_of
from podwright.wire import READING_ATTRIBUTES, DeviceRef

_AttributeNames = tuple[tuple[str, ...], ...]  #: of each device of a machine
_V = TypeVar("_V")
_MAX_SHARED: Final = 10_000  #: values
_definitions = count(1)


class IndexedCluster:
    """One cluster. layout: its link domains and machines.

    refs[domain][offset] is the device as partitions show it.
    """

    def __init__(self, layout: Cluster, allocations: Mapping[str, Sequence[str]]) -> None:
        self.layout = layout
        self.index = index_of(layout)
        self.allocations: dict[str, list[str]] = {}
        for name, names in allocations.items():
            self.index.define_allocation(name, names)
            self.allocations[name] = list(names)
        if not self.allocations:
            self.allocations[layout.name] = self.machines()
        self._devices_per_machine = layout.family.devices_per_machine
        self.drains: dict[str, DrainRecord] = {}  #: by machine
        #: By machine: the names of its devices' attributes, and their values.
        self._attributes: dict[str, tuple[_AttributeNames, tuple[tuple[str, ...], ...]]] = {}
        self._shared: dict[Any, Any] = {}  #: what many devices have in common, by itself
        #: By machine: the devices that are not healthy, where there are any.
        self.unhealthy: dict[str, frozenset[int]] = {}
        #: By machine: the devices that the fabric could not join now, and why.
        self.unjoinable: dict[str, dict[int, str]] = {}
        self.measuring: set[str] = set()  #: machines whose drivers measure something
        self.closed: dict[str, str] = {}  #: allocation -> the scheduler who alone creates in it
        self.owned: dict[str, str] = {}  #: allocation -> the user for whose job it was made
        #: What its last test found of its cables: machine and problem.
        self.miscabled: list[tuple[str, str]] = []
        self.definition = 0  #: another number for each definition of its machines and allocations
        #: Link domains of which something may have changed since they were last described.
        self.touched: set[int] = set()
        self.redefined_now()
        self._lay_out_devices()

    def _lay_out_devices(self) -> None:
        """Names and places of machines, and devices of which nothing is known yet."""
        layout = self.layout
        self._names = [[machine.name for machine in domain.machines] for domain in layout.domains]
        self.places = {
            name: (domain, index)
            for domain, names in enumerate(self._names)
            for index, name in enumerate(names)
        }
        self.refs = [
            [
                DeviceRef(
                    domain=domain,
                    offset=offset,
                    machine=self._names[domain][offset // self._devices_per_machine],
                    index=offset % self._devices_per_machine,
                )
                for offset in range(layout.domain_size(domain))
            ]
            for domain in range(len(layout.domains))
        ]
        self.size = sum(map(len, self.refs))  #: the number of devices

    @property
    def drained(self) -> KeysView[str]:
        """Machines that take nothing new."""
        return self.drains.keys()

    def redefined(
        self, layout: Cluster, machines_by_allocation: Mapping[str, Sequence[str]]
    ) -> NodeIndex | Index:
        """An index of the cluster as it is to be, in which all is taken that is taken now.

        machines_by_allocation: of each allocation; none: one for all. Raises ValueError for what
        has no place there.
        """
        index = index_of(layout)
        for name, names in machines_by_allocation.items():
            index.define_allocation(name, names)
        for placement in self.index.placements():
            index.take(placement)
        return index

    def redefine(
        self,
        layout: Cluster,
        new_index: NodeIndex | Index,
        machines_by_allocation: Mapping[str, Sequence[str]],
    ) -> None:
        """Replace the cluster; machines that stay keep their place."""
        previous_refs = {
            name: self.refs[domain_index][machine_index * self._devices_per_machine :]
            for name, (domain_index, machine_index) in self.places.items()
        }
        self.layout, self.index = layout, new_index
        self._lay_out_devices()
        for name, (domain, position) in self.places.items():
            first_offset = position * self._devices_per_machine
            if name in previous_refs:
                self.refs[domain][first_offset : first_offset + self._devices_per_machine] = (
                    previous_refs[name][: self._devices_per_machine]
                )
        self.allocations = {
            name: list(names) for name, names in machines_by_allocation.items()
        } or {layout.name: self.machines()}
        for table in (self._attributes, self.unhealthy, self.unjoinable, self.drains):
            for name in table.keys() - self.places.keys():
                del table[name]
        self.measuring &= self.places.keys()
        self.redefined_now()
        for name in self._attributes:
            self._update_index(name)

    def make_restore(self) -> Callable[[], None]:
        """A function that restores the cluster as it is now, with the devices taken by then."""
        saved_fields = {
            field_name: copy(field_value)
            for field_name, field_value in vars(self).items()
            if field_name != "index"
        }
        machines_by_allocation = (
            {} if list(self.allocations) == [self.layout.name] else dict(self.allocations)
        )

        def restore() -> None:
            self.index = self.redefined(saved_fields["layout"], machines_by_allocation)
            vars(self).update(saved_fields)
            self.redefined_now()
            for machine_name in self._attributes:
                self._update_index(machine_name)

        return restore

    def _update_index(self, machine: str) -> None:
        """Tell the index which devices of a machine are unhealthy, and which are slices."""
        self.index.avoid_devices(machine, self.avoided(machine))
        if isinstance(self.index, NodeIndex):
            numbered_attributes = enumerate(self.attributes_in(machine))
            profiles = {
                device_index: attributes.get("profile", "")
                for device_index, attributes in numbered_attributes
            }
            self.index.cut(
                machine,
                {device_index: profile for device_index, profile in profiles.items() if profile},
            )

    def attributes_of(self, machine: str, index: int) -> dict[str, str]:
        """The attributes of a device; none before its machine's first report.

        They are put together here: a dictionary that is kept needs twice the memory.
        """
        names, values = self._attributes.get(machine, ((), ()))
        return dict(zip(names[index], values[index], strict=True)) if index < len(names) else {}

    def attributes_in(self, machine: str) -> list[dict[str, str]]:
        """The attributes of all devices of a machine."""
        names, _ = self._attributes.get(machine, ((), ()))
        return [self.attributes_of(machine, index) for index in range(len(names))]

    def _share(self, value: _V) -> _V:
        """The same value as other devices have."""
        if len(self._shared) >= _MAX_SHARED:
            self._shared.clear()
        return cast(_V, self._shared.setdefault(value, value))

    def avoided(self, machine: str) -> frozenset[int]:
        """The devices of a machine that nobody gets: ill ones, and those that cannot be joined."""
        return self.unhealthy.get(machine, frozenset()).union(self.unjoinable.get(machine, ()))

    def withhold(self, machine: str, reasons: dict[int, str]) -> None:
        """Take over which free devices of a machine the fabric could not join, and why."""
        if reasons != self.unjoinable.get(machine, {}):
            self.unjoinable[machine] = reasons
            if not reasons:
                del self.unjoinable[machine]
            self.touch_machine(machine)
            if machine in self._attributes:  # else its first report does it
                self._update_index(machine)

    def redefined_now(self) -> None:
        """Note that machines or allocations were defined anew."""
        self.definition = next(_definitions)
        self._allocation_by_machine = {
            name: allocation for allocation, names in self.allocations.items() for name in names
        }

    def touch_machine(self, machine: str) -> None:
        """Note that something of a machine changed that is told of its devices."""
        if (place := self.places.get(machine)) is not None:
            self.touched.add(place[0])

    def allocation_of(self, machine: str) -> str:
        """The allocation of a machine; empty if it has none."""
        return self._allocation_by_machine.get(machine, "")

    def machines(self) -> list[str]:
        """All machines, in the order of domains and links."""
        return [machine.name for domain in self.layout.domains for machine in domain.machines]

    def learn(self, machine: str, machine_report: MachineReport) -> None:
        """Take over what a machine reports of its devices."""
        domain, machine_position = self.places[machine]
        first_offset = machine_position * self._devices_per_machine
        for device in machine_report.devices[: self._devices_per_machine]:
            self.refs[domain][first_offset + device.index] = DeviceRef(
                domain=domain,
                offset=first_offset + device.index,
                machine=machine,
                index=device.index,
                ip=device.ip,
                server_port=self._share(device.server_port),
                rdma_port=self._share(device.rdma_port),
                arch_id=device.arch_id,
                chip_id=device.chip_id,
            )
        names = tuple(tuple(device.attributes) for device in machine_report.devices)
        self._attributes[machine] = (
            self._share(names),
            tuple(tuple(device.attributes.values()) for device in machine_report.devices),
        )
        if all(map(READING_ATTRIBUTES.isdisjoint, names)):
            self.measuring.discard(machine)
        else:
            self.measuring.add(machine)
        unhealthy = frozenset(
            reported_device.index
            for reported_device in machine_report.devices
            if not reported_device.healthy
        )
        if unhealthy != self.unhealthy.get(machine, frozenset()):
            self.touched.add(domain)
        if unhealthy:
            self.unhealthy[machine] = unhealthy
        else:
            self.unhealthy.pop(machine, None)
        self._update_index(machine)

    def parts(self, blocks: Sequence[Block]) -> dict[str, list[int]]:
        """Blocks as indices of devices in each machine."""
        machine_size = self._devices_per_machine
        indices_by_machine: dict[str, list[int]] = {}
        for domain, offset, size in blocks:
            names, end_offset = self._names[domain], offset + size
            while offset < end_offset:
                machine_index, first_index = divmod(offset, machine_size)
                device_count = min(machine_size - first_index, end_offset - offset)
                indices_by_machine.setdefault(names[machine_index], []).extend(
                    range(first_index, first_index + device_count)
                )
                offset += device_count
        return indices_by_machine

    def blocks_by_machine(self, blocks: Sequence[Block]) -> list[tuple[str, Block]]:
        """Blocks cut at the edges of machines."""
        machine_size = self._devices_per_machine
        machine_blocks = []
        for domain, offset, size in blocks:
            end_offset = offset + size
            while offset < end_offset:
                machine_index, first_index = divmod(offset, machine_size)
                device_count = min(machine_size - first_index, end_offset - offset)
                machine_blocks.append(
                    (self._names[domain][machine_index], Block(domain, offset, device_count))
                )
                offset += device_count
        return machine_blocks

    def span(self, gcd_blocks: Sequence[Block], device_mask: int) -> list[Block]:
        """The devices of a partition whose bits are set in `device_mask`, in routing order."""
        covered_blocks: list[Block] = []
        offset = 0
        for gcd_block in gcd_blocks:
            block_mask = device_mask >> offset & ((1 << gcd_block.size) - 1)
            if block_mask == (1 << gcd_block.size) - 1:
                covered_blocks.append(gcd_block)
            elif block_mask:
                covered_blocks.extend(
                    Block(gcd_block.domain, gcd_block.offset + index, 1)
                    for index in range(gcd_block.size)
                    if block_mask >> index & 1
                )
            offset += gcd_block.size
        return covered_blocks


class ClusterIndex:
    """All clusters."""

    def __init__(
        self,
        clusters: Sequence[Cluster],
        allocations: Mapping[str, Mapping[str, Sequence[str]]],
    ) -> None:
        self.clusters = {
            layout.name: IndexedCluster(layout, allocations.get(layout.name, {}))
            for layout in clusters
        }
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
        candidate_clusters = (
            [self.clusters[cluster_name]] if cluster_name else list(self.clusters.values())
        )
        if allocation:
            allocation_names = [
                allocation_name
                for cluster in candidate_clusters
                for allocation_name in cluster.allocations
            ]
            candidate_clusters = [
                cluster for cluster in candidate_clusters if allocation in cluster.allocations
            ]
            if not candidate_clusters:
                raise NotFound(
                    f"there is no allocation {allocation}"
                    + (f" in cluster {cluster_name}" if cluster_name else ""),
                    operation=action,
                    would_work=f"use {_names(allocation_names)}",
                    allocation=allocation,
                )
        if not candidate_clusters:
            raise InvalidRequest(
                "this server has no cluster", operation=action, would_work="define one"
            )
        return candidate_clusters


def _names(object_names: Sequence[str]) -> str:
    listed_names = list(object_names[:5])
    suffix = f" (and {len(object_names) - 5} more)" if len(object_names) > 5 else ""
    return (" or ".join(listed_names) or "another server, or define it first") + suffix
