"""What callers see of others' objects: a setting, as Slurm's PrivateData, and one rule without it.

The rule: the addresses at which a partition's devices answer (IPUoF end points) are told only to
its owner, its creator, holders of a lease on it, the scheduler of its allocation, administrators.

Both work on requests and replies where they pass, so that no call can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from podwright.controller.state._caller import ANONYMOUS, Caller, Role
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._visibility import Visibility, belongs_to_caller
from podwright.errors import Denied, InvalidRequest, NotFound
from podwright.wire import (
    AcquireReply,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    EventInfo,
    EventList,
    PartitionInfo,
    PartitionList,
    Value,
    WaitReply,
)

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._partition_index import PartitionEntry

_V = TypeVar("_V", bound=Value)
#: What can be private: others' partitions (and who is in the way), leases, places in line, whose
#: devices are; allocations that one may not use; agents.
PRIVATE_KINDS: Final = ("partitions", "leases", "waiters", "devices", "allocations", "agents")


def private_kinds(text: str) -> frozenset[str]:
    """`partitions,leases`, `all` or `none` as a set. Raises InvalidRequest."""
    kinds = {name.strip() for name in text.split(",") if name.strip()} - {"none"}
    if "all" in kinds:
        kinds = kinds - {"all"} | set(PRIVATE_KINDS)
    if unknown_kinds := sorted(kinds - set(PRIVATE_KINDS)):
        raise InvalidRequest(
            f"{unknown_kinds[0]!r} cannot be private",
            operation="--private-data",
            would_work=f"all, none, or some of {', '.join(PRIVATE_KINDS)}",
        )
    return frozenset(kinds)


#: Attributes of a device that tell what its user's programs do.
_PROGRAM_ATTRIBUTES = frozenset(
    {"processes", "load", "memory used", "power", "temperature", "last xid"}
)


@dataclass(frozen=True)
class Visible:
    """What callers see of others' objects, as a site sets it. private: of PRIVATE_KINDS; None: all
    of them on a secure server, none on another. anonymous_endpoints: who shows nothing gets the end
    points of all partitions.
    """

    private: frozenset[str] | None = None
    anonymous_endpoints: bool = False

    def settled(self, *, secure: bool) -> Visible:
        """The same settings with the private kinds resolved."""
        if self.private is not None:
            return self
        return replace(self, private=frozenset(PRIVATE_KINDS if secure else ()))


class Privacy:
    """What each caller sees. granted: the allocations that a caller may use; none: all."""

    def __init__(
        self, state: ControllerState, visible: Visible, granted: Callable[[Caller], tuple[str, ...]]
    ) -> None:
        self._state = state
        self._granted = granted
        self.kinds = visible.private or frozenset()
        self._anonymous_endpoints = visible.anonymous_endpoints
        state.sight = Visibility(self.kinds)

    def hides_agents(self, caller: Caller) -> bool:
        """Whether agents are hidden from a caller."""
        return "agents" in self.kinds and caller.role is not Role.ADMINISTRATOR

    # -- requests ----------------------------------------------------------------------------

    def check_request(self, caller: Caller, request: Value) -> None:
        """Raises NotFound for an allocation that the caller may not know of, as if there were none.

        One that does not exist is refused here too, and in the same words.
        """
        if caller.role is Role.ADMINISTRATOR or "allocations" not in self.kinds:
            return
        may_see = self.use(caller)
        for cluster_name, allocation in _named_allocations(request):
            if not allocation:
                continue
            clusters = self._state.inventory.clusters
            known_allocations = [
                allocation_name
                for known_cluster_name, cluster in clusters.items()
                if cluster_name in ("", known_cluster_name)
                for allocation_name in cluster.allocations
                if may_see(cluster, allocation_name)
            ]
            if allocation not in known_allocations and (
                not cluster_name or cluster_name in clusters
            ):
                raise NotFound(
                    f"there is no allocation {allocation[:80]}",
                    would_work=f"use {' or '.join(known_allocations[:5])}"
                    if known_allocations
                    else "ask an administrator",
                    allocation=allocation[:80],
                )

    def use(self, caller: Caller) -> Callable[[IndexedCluster, str], bool]:
        """Return a function that says whether the caller may know of a cluster's allocation."""
        granted = self._granted(caller)

        def sees(cluster: IndexedCluster, allocation_name: str) -> bool:
            return self._state.sight.allocation(caller, cluster, allocation_name, granted)

        return sees

    def sees_allocation(self, caller: Caller, allocation_name: str) -> bool:
        """Whether the caller may know of an allocation of any cluster; of none: yes."""
        may_see, clusters = self.use(caller), self._state.inventory.clusters.values()
        return not allocation_name or any(
            allocation_name in cluster.allocations and may_see(cluster, allocation_name)
            for cluster in clusters
        )

    def check_attach(self, caller: Caller, partition_name: str) -> None:
        """Raise Denied unless the caller may attach to the partition."""
        partition_entry = self._state.partitions.get(partition_name)
        if (
            partition_entry is None
            or partition_entry.record is None
            or self._may_attach(caller, partition_entry)
        ):
            return
        owner = partition_entry.record.owner
        raise Denied(
            f"where its devices answer is told to {owner} alone, and you are {caller.name}",
            operation=f"get the IPUoF configuration of partition {partition_name[:80]}",
            would_work=f"ask with a certificate or an access key of {owner}'s"
            + (
                " (podwright proxy does for other programs); or vipu-server --anonymous-endpoints"
                if caller.name == ANONYMOUS
                else ""
            ),
            owner=owner,
        )

    # -- replies -----------------------------------------------------------------------------

    def redacted(self, caller: Caller, reply: Any) -> Any:
        """The reply without what this caller may not see."""
        if caller.role is Role.ADMINISTRATOR:
            return reply
        if isinstance(reply, PartitionInfo):
            return self._redacted_partition(caller, reply)
        if isinstance(reply, AcquireReply | WaitReply) and reply.partition is not None:
            visible_partition = self._redacted_partition(caller, reply.partition)
            return (
                reply
                if visible_partition is reply.partition
                else _with_fields(reply, partition=visible_partition)
            )
        if isinstance(reply, PartitionList):
            return _with_fields(
                reply,
                partitions=[
                    self._redacted_partition(caller, partition) for partition in reply.partitions
                ],
            )
        if isinstance(reply, DeviceList):
            return _with_fields(
                reply, devices=[self._redacted_device(caller, device) for device in reply.devices]
            )
        if isinstance(reply, EventList) and "partitions" in self.kinds:
            return _with_fields(
                reply, events=[_redacted_event(caller, event) for event in reply.events]
            )
        return reply

    # -- inside ------------------------------------------------------------------------------

    def _may_attach(self, caller: Caller, partition_entry: PartitionEntry) -> bool:
        if belongs_to_caller(caller, partition_entry):
            return True
        return self._anonymous_endpoints and caller.name == ANONYMOUS

    def _redacted_partition(self, caller: Caller, partition_info: PartitionInfo) -> PartitionInfo:
        entry = self._state.partitions.get(partition_info.name)
        if entry is None or self._may_attach(caller, entry):
            return partition_info
        leases = partition_info.leases if self._state.sight.leases(caller, entry) else []
        return _with_fields(
            partition_info,
            gcds=[[_without_address(ref) for ref in gcd] for gcd in partition_info.gcds],
            leases=leases,
        )

    def _redacted_device(self, caller: Caller, device_info: DeviceInfo) -> DeviceInfo:
        if "kept_for" in device_info.attributes and "waiters" in self.kinds:
            attributes = {
                attribute_name: attribute_value
                for attribute_name, attribute_value in device_info.attributes.items()
                if attribute_name != "kept_for"
            }
            device_info = _with_fields(device_info, attributes=attributes)
        if device_info.allocation and not self.sees_allocation(caller, device_info.allocation):
            device_info = _with_fields(device_info, allocation="")
        partition_entry = (
            self._state.partitions.get(device_info.partition) if device_info.partition else None
        )
        if partition_entry is not None and self._may_attach(caller, partition_entry):
            return device_info
        hides_partition = "devices" in self.kinds or "partitions" in self.kinds
        partition_name = (
            "" if partition_entry is not None and hides_partition else device_info.partition
        )
        if partition_entry is not None and hides_partition:
            attributes = {
                attribute_name: attribute_value
                for attribute_name, attribute_value in device_info.attributes.items()
                if attribute_name not in _PROGRAM_ATTRIBUTES
            }
            device_info = _with_fields(device_info, attributes=attributes)
        return _with_fields(
            device_info, device=_without_address(device_info.device), partition=partition_name
        )


def _named_allocations(request: Any) -> Iterator[tuple[str, str]]:
    """The clusters and allocations that a request names, however deep, also in its lists."""
    if isinstance(request, Value):
        for field_name in request.__struct_fields__:
            field_value = getattr(request, field_name)
            if field_name == "allocation":
                yield getattr(request, "cluster", ""), field_value
            elif field_name == "allocations":
                yield from (("", allocation) for allocation in field_value)
            else:
                yield from _named_allocations(field_value)
    elif isinstance(request, dict):
        for value in request.values():
            yield from _named_allocations(value)
    elif isinstance(request, list | tuple):
        for value in request:
            yield from _named_allocations(value)


def _redacted_event(caller: Caller, event_info: EventInfo) -> EventInfo:
    """An event, with its owner only where the caller is the owner."""
    return (
        event_info if event_info.owner in ("", caller.name) else _with_fields(event_info, owner="")
    )


def _without_address(device_ref: DeviceRef) -> DeviceRef:
    return DeviceRef(
        domain=device_ref.domain,
        offset=device_ref.offset,
        machine=device_ref.machine,
        index=device_ref.index,
        arch_id=device_ref.arch_id,
        chip_id=device_ref.chip_id,
    )


def _with_fields(struct: _V, **field_changes: Any) -> _V:
    return msgspec.structs.replace(struct, **field_changes)
