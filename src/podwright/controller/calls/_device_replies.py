"""The list of devices: where each is, what it is like, and whose.

A link domain is looked at as a whole when its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator

from podwright.controller.calls._list_pages import ListPage, bad_page_token
from podwright.controller.calls._object_replies import check_filters
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._domain_view import ClaimedBlocks, DomainView, view_domain
from podwright.wire import DeviceInfo, DeviceList, DeviceRef, ListRequest


def devices(state: ControllerState, request: ListRequest) -> DeviceList:
    """Devices, in the order of cluster, domain, offset. Raises NotFound for unknown filters."""
    page = ListPage[DeviceInfo](request)
    check_filters(state, request, "list devices")
    claimed = ClaimedBlocks(state)
    for cluster, domain, first_offset in _domains_after(state, request):
        view = view_domain(state, cluster, domain, claimed)
        prefix = f"{cluster.layout.name}/{domain}/"
        for device_ref in cluster.refs[domain][first_offset:]:
            allocation = cluster.allocation_of(device_ref.machine)
            if request.allocation not in ("", allocation):
                continue
            if page.full:
                return DeviceList(devices=page.items, next_page_token=page.token)
            page.add(
                f"{prefix}{device_ref.offset}",
                _device_info(cluster, device_ref, allocation, view),
            )
    return DeviceList(devices=page.items, next_page_token=page.token)


def _domains_after(
    state: ControllerState, request: ListRequest
) -> Iterator[tuple[IndexedCluster, int, int]]:
    """The link domains with devices behind the token, and the offset of the first of these."""
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
        for index in range(token_domain if is_token_cluster else 0, len(cluster.refs)):
            first_offset = token_offset + 1 if is_token_cluster and index == token_domain else 0
            if first_offset < len(cluster.refs[index]):
                yield cluster, index, first_offset


def _parse_page_token(state: ControllerState, page_token: str) -> tuple[str, int, int]:
    """Raises InvalidRequest for a token of no list, or of a cluster that is gone."""
    name, _, place_text = page_token.partition("/")
    domain_text, _, offset_text = place_text.partition("/")
    if name not in state.inventory.clusters or not (
        domain_text.isdecimal() and offset_text.isdecimal() and len(place_text) < 32
    ):
        raise bad_page_token(page_token)
    return name, int(domain_text), int(offset_text)


def _device_info(
    cluster: IndexedCluster, device_ref: DeviceRef, allocation: str, view: DomainView
) -> DeviceInfo:
    """A device, complete."""
    offset, index = device_ref.offset, device_ref.index
    attributes = cluster.attributes_of(device_ref.machine, index)
    if view.states[offset] == "RESERVED":
        attributes["kept_for"] = view.kept[offset]
    if (drain := cluster.drains.get(device_ref.machine)) and drain.reason:
        attributes["drained"] = drain.reason
    return DeviceInfo(
        cluster=cluster.layout.name,
        device=device_ref,
        allocation=allocation,
        state=view.states[offset],
        partition=view.owners[offset],
        attributes=attributes,
    )
