"""The list of devices: where each is, what it is like, and whose.

What is needed of the whole is worked out once a page; a machine is looked at when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from podwright.controller.calls._list_pages import ListPage, bad_token
from podwright.controller.calls._views import check_filters
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.wire import DeviceInfo, DeviceList, DeviceRef, ListRequest, OperationState

#: A device by its cluster, link domain and place in that domain.
_Place = tuple[str, int, int]


def devices(state: ControllerState, request: ListRequest) -> DeviceList:
    """Devices, in the order of cluster, domain, offset. Raises NotFound for unknown filters."""
    page = ListPage[DeviceInfo](request)
    check_filters(state, request, "list devices")
    view = _Look(state)
    for cluster, ref in _after(state, request):
        allocation = view.allocation(cluster, ref.machine)
        if request.allocation not in ("", allocation):
            continue
        if page.full:
            break
        name = cluster.layout.name
        page.add(f"{name}/{ref.domain}/{ref.offset}", view.info(cluster, ref, allocation))
    return DeviceList(devices=page.items, next_page_token=page.token)


def _after(
    state: ControllerState, request: ListRequest
) -> Iterator[tuple[IndexedCluster, DeviceRef]]:
    """The devices after those of the token."""
    token = request.page_token
    after_cluster, domain, offset = _parsed(state, token) if token else ("", 0, -1)
    reached = not after_cluster
    for name, cluster in state.inventory.clusters.items():
        resumes = name == after_cluster
        reached = reached or resumes
        if not reached or request.cluster not in ("", name):
            continue
        for domain_index in range(domain if resumes else 0, len(cluster.refs)):
            first = offset + 1 if resumes and domain_index == domain else 0
            for ref in cluster.refs[domain_index][first:]:
                yield cluster, ref


def _parsed(state: ControllerState, token: str) -> tuple[str, int, int]:
    """Raises InvalidRequest for a token of no list, or of a cluster that is gone."""
    cluster, _, place = token.partition("/")
    domain, _, offset = place.partition("/")
    if cluster not in state.inventory.clusters or not (
        domain.isdecimal() and offset.isdecimal() and len(place) < 32
    ):
        raise bad_token(token)
    return cluster, int(domain), int(offset)


class _Look:
    """The state that all devices of a page are described from."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._allocations: dict[str, dict[str, str]] = {}
        self._machine = ""
        self._owners: dict[int, str] = {}
        self._waiting: set[_Place] = {
            (q.cluster, q.block.domain, q.block.offset + i)
            for q in state.quarantine.values()
            for i in range(q.block.size)
        }
        self._waiter_of: dict[_Place, str] = {
            (pool[0], block.domain, block.offset + i): reservation.waiter
            for pool, reservation in state.reservations.items()
            for piece in reservation.placements
            for block in piece.blocks
            for i in range(block.size)
        }
        self._waiter_of |= {
            (pending.cluster.layout.name, block.domain, block.offset + i): pending.partition
            for pending in state.moves.values()
            for block in pending.target.blocks
            for i in range(block.size)
        }

    def allocation(self, cluster: IndexedCluster, machine: str) -> str:
        """The allocation of a machine; empty if it has none."""
        known = self._allocations.get(cluster.layout.name)
        if known is None:
            known = {m: name for name, machines in cluster.allocations.items() for m in machines}
            self._allocations[cluster.layout.name] = known
        return known.get(machine, "")

    def info(self, cluster: IndexedCluster, ref: DeviceRef, allocation: str) -> DeviceInfo:
        """A device, complete."""
        if ref.machine != self._machine:
            self._machine, self._owners = ref.machine, self._state.partitions.owners(ref.machine)
        partition = self._owners.get(ref.index, "")
        known = cluster.attributes.get(ref.machine, ())
        attributes = dict(known[ref.index]) if ref.index < len(known) else {}
        shown_state = self._state_of(cluster, ref, partition)
        if shown_state == "RESERVED":
            place = (cluster.layout.name, ref.domain, ref.offset)
            attributes["kept_for"] = self._waiter_of[place]
        return DeviceInfo(
            cluster=cluster.layout.name,
            device=ref,
            allocation=allocation,
            state=shown_state,
            partition=partition,
            attributes=attributes,
        )

    def _state_of(self, cluster: IndexedCluster, ref: DeviceRef, partition: str) -> str:
        place = (cluster.layout.name, ref.domain, ref.offset)
        if ref.machine in self._state.down or ref.index in cluster.unhealthy.get(ref.machine, ()):
            return "DOWN"
        if place in self._waiting or (partition and self._resetting(partition)):
            return "RESETTING"
        if not partition and ref.machine in cluster.drained:
            return "DRAINED"
        if place in self._waiter_of:
            return "RESERVED"
        return "IN_USE" if partition else "FREE"

    def _resetting(self, partition: str) -> bool:
        entry = self._state.partitions.get(partition)
        return bool(
            entry
            and entry.record
            and entry.record.operation in (OperationState.RESETTING, OperationState.REMOVING)
        )
