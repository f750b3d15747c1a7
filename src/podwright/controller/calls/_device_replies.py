"""The list of devices: where each is, what it is like, and whose.

What is needed of the whole is worked out once a page; a machine is looked at when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from podwright.controller.calls._list_pages import ListPage, bad_page_token
from podwright.controller.calls._object_replies import check_filters
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.wire import DeviceInfo, DeviceList, DeviceRef, ListRequest, OperationState

#: A device by its cluster, link domain and place in that domain.
_DevicePlace = tuple[str, int, int]


def devices(state: ControllerState, request: ListRequest) -> DeviceList:
    """Devices, in the order of cluster, domain, offset. Raises NotFound for unknown filters."""
    page = ListPage[DeviceInfo](request)
    check_filters(state, request, "list devices")
    device_view = _DeviceView(state)
    for cluster, device_ref in _devices_after(state, request):
        allocation = device_view.allocation(cluster, device_ref.machine)
        if request.allocation not in ("", allocation):
            continue
        if page.full:
            break
        cluster_name = cluster.layout.name
        page.add(
            f"{cluster_name}/{device_ref.domain}/{device_ref.offset}",
            device_view.info(cluster, device_ref, allocation),
        )
    return DeviceList(devices=page.items, next_page_token=page.token)


def _devices_after(
    state: ControllerState, request: ListRequest
) -> Iterator[tuple[IndexedCluster, DeviceRef]]:
    """The devices after those of the token."""
    page_token = request.page_token
    after_cluster, token_domain, token_offset = (
        _parse_page_token(state, page_token) if page_token else ("", 0, -1)
    )
    reached_cluster = not after_cluster
    for cluster_name, cluster in state.inventory.clusters.items():
        is_token_cluster = cluster_name == after_cluster
        reached_cluster = reached_cluster or is_token_cluster
        if not reached_cluster or request.cluster not in ("", cluster_name):
            continue
        for domain_index in range(token_domain if is_token_cluster else 0, len(cluster.refs)):
            first_offset = (
                token_offset + 1 if is_token_cluster and domain_index == token_domain else 0
            )
            for device_ref in cluster.refs[domain_index][first_offset:]:
                yield cluster, device_ref


def _parse_page_token(state: ControllerState, page_token: str) -> tuple[str, int, int]:
    """Raises InvalidRequest for a token of no list, or of a cluster that is gone."""
    cluster_name, _, place_text = page_token.partition("/")
    domain_text, _, offset_text = place_text.partition("/")
    if cluster_name not in state.inventory.clusters or not (
        domain_text.isdecimal() and offset_text.isdecimal() and len(place_text) < 32
    ):
        raise bad_page_token(page_token)
    return cluster_name, int(domain_text), int(offset_text)


class _DeviceView:
    """The state that all devices of a page are described from."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._allocations: dict[str, dict[str, str]] = {}
        self._machine = ""
        self._owners: dict[int, str] = {}
        self._waiting: set[_DevicePlace] = {
            (
                quarantine_record.cluster,
                quarantine_record.block.domain,
                quarantine_record.block.offset + block_index,
            )
            for quarantine_record in state.quarantine.values()
            for block_index in range(quarantine_record.block.size)
        }
        self._waiter_by_place: dict[_DevicePlace, str] = {
            (pool_key[0], block.domain, block.offset + block_index): reservation.waiter
            for pool_key, reservation in state.reservations.items()
            for placement in reservation.placements
            for block in placement.blocks
            for block_index in range(block.size)
        }
        self._waiter_by_place |= {
            (
                pending_move.cluster.layout.name,
                block.domain,
                block.offset + block_index,
            ): pending_move.partition
            for pending_move in state.moves.values()
            for block in pending_move.target.blocks
            for block_index in range(block.size)
        }

    def allocation(self, cluster: IndexedCluster, machine: str) -> str:
        """The allocation of a machine; empty if it has none."""
        allocation_by_machine = self._allocations.get(cluster.layout.name)
        if allocation_by_machine is None:
            allocation_by_machine = {
                machine_name: allocation_name
                for allocation_name, machines in cluster.allocations.items()
                for machine_name in machines
            }
            self._allocations[cluster.layout.name] = allocation_by_machine
        return allocation_by_machine.get(machine, "")

    def info(self, cluster: IndexedCluster, device_ref: DeviceRef, allocation: str) -> DeviceInfo:
        """A device, complete."""
        if device_ref.machine != self._machine:
            self._machine, self._owners = (
                device_ref.machine,
                self._state.partitions.owners(device_ref.machine),
            )
        partition = self._owners.get(device_ref.index, "")
        machine_attributes = cluster.attributes.get(device_ref.machine, ())
        attributes = (
            dict(machine_attributes[device_ref.index])
            if device_ref.index < len(machine_attributes)
            else {}
        )
        shown_state = self._device_state(cluster, device_ref, partition)
        if shown_state == "RESERVED":
            device_place = (cluster.layout.name, device_ref.domain, device_ref.offset)
            attributes["kept_for"] = self._waiter_by_place[device_place]
        return DeviceInfo(
            cluster=cluster.layout.name,
            device=device_ref,
            allocation=allocation,
            state=shown_state,
            partition=partition,
            attributes=attributes,
        )

    def _device_state(self, cluster: IndexedCluster, device_ref: DeviceRef, partition: str) -> str:
        device_place = (cluster.layout.name, device_ref.domain, device_ref.offset)
        if device_ref.machine in self._state.down or device_ref.index in cluster.unhealthy.get(
            device_ref.machine, ()
        ):
            return "DOWN"
        if device_place in self._waiting or (partition and self._is_resetting(partition)):
            return "RESETTING"
        if not partition and device_ref.machine in cluster.drained:
            return "DRAINED"
        if device_place in self._waiter_by_place:
            return "RESERVED"
        return "IN_USE" if partition else "FREE"

    def _is_resetting(self, partition: str) -> bool:
        entry = self._state.partitions.get(partition)
        return bool(
            entry
            and entry.record
            and entry.record.operation in (OperationState.RESETTING, OperationState.REMOVING)
        )
