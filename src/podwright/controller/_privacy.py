"""What callers see of others' things: a setting, as Slurm's PrivateData, and one rule without it.

The rule: where a partition's devices answer (IPUoF end points) is told to those alone whose it is:
owner, creator, who holds a lease on it, the scheduler of its allocation, administrators.

Both work on requests and replies where they pass, so that no call can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from podwright.controller._caller import ANONYMOUS, Caller, Role
from podwright.errors import Denied, InvalidRequest
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    AgentList,
    AllocationList,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    ExplainRequest,
    JobList,
    LeaseInfo,
    LeaseList,
    PartitionInfo,
    PartitionList,
    PartitionName,
    RemoveRequest,
    ResetRequest,
    Value,
    WaiterList,
    WaitReply,
)

if TYPE_CHECKING:
    from podwright.controller._core import Core, Entry

_V = TypeVar("_V", bound=Value)
#: What can be private: others' partitions (and who is in the way), leases, places in line, whose
#: devices are; allocations that one may not use; agents.
KINDS: Final = ("partitions", "leases", "waiters", "devices", "allocations", "agents")


def private_kinds(text: str) -> frozenset[str]:
    """`partitions,leases` or `all` as a set. Raises InvalidRequest."""
    found = {word.strip() for word in text.split(",") if word.strip()}
    if "all" in found:
        found = found - {"all"} | set(KINDS)
    if unknown := sorted(found - set(KINDS)):
        raise InvalidRequest(
            f"{unknown[0]!r} cannot be private",
            asked="--private-data",
            would_work=f"all, or some of {', '.join(KINDS)}",
        )
    return frozenset(found)


@dataclass(frozen=True)
class Visible:
    """What a site wants seen. private: of KINDS. anonymous_endpoints: who shows nothing gets the
    end points of all partitions."""

    private: frozenset[str] = frozenset()
    anonymous_endpoints: bool = False


class Privacy:
    """What each caller sees. granted: the allocations that a caller may use; none: all."""

    def __init__(
        self, core: Core, visible: Visible, granted: Callable[[Caller], tuple[str, ...]]
    ) -> None:
        self._core = core
        self._granted = granted
        self.kinds = visible.private
        self._anonymous_endpoints = visible.anonymous_endpoints
        if "partitions" in self.kinds:
            core.may_name = lambda user, record: user in (record.owner, record.creator)

    # -- requests ----------------------------------------------------------------------------

    def check_request(self, caller: Caller, request: Value) -> None:
        """Raises NotFound for a partition that is not to be seen, as if there were none."""
        if caller.role is Role.ADMINISTRATOR or "partitions" not in self.kinds:
            return
        if isinstance(request, PartitionName | ResetRequest | RemoveRequest | ExplainRequest):
            name = request.name
        elif isinstance(request, AcquireRequest):
            name = request.spec.name
        else:
            return
        core = self._core
        lease = core.leases.get(name)
        entry = core.fences.get(name)
        if entry is None:
            entry = core.partitions.get(lease.record.partition if lease else name)
        if entry is not None and not self._is_of(caller, entry):
            raise core.missing(
                name, "", would_work="vipu list partitions shows those that are yours"
            )

    def check_attach(self, caller: Caller, name: str) -> None:
        """Raises Denied for somebody whose partition it is not."""
        entry = self._core.partitions.get(name)
        if entry is None or entry.record is None or self._may_attach(caller, entry):
            return
        owner = entry.record.owner
        raise Denied(
            f"where its devices answer is told to {owner} alone, and you are {caller.name}",
            asked=f"get the IPUoF configuration of partition {name[:80]}",
            would_work=f"ask with a certificate or an access key of {owner}'s"
            + (
                " (podwright proxy does for other programs); or vipu-server --anonymous-endpoints"
                if caller.name == ANONYMOUS
                else ""
            ),
            owner=owner,
        )

    # -- replies -----------------------------------------------------------------------------

    def shown(self, caller: Caller, reply: Any) -> Any:
        """A reply as this caller may have it."""
        if caller.role is Role.ADMINISTRATOR:
            return reply
        if isinstance(reply, PartitionInfo):
            return self._partition(caller, reply)
        if isinstance(reply, AcquireReply | WaitReply) and reply.partition is not None:
            seen = self._partition(caller, reply.partition)
            return reply if seen is reply.partition else _with(reply, partition=seen)
        if isinstance(reply, PartitionList):
            partitions = [p for p in reply.partitions if self._sees(caller, p.name, "partitions")]
            return _with(reply, partitions=[self._partition(caller, p) for p in partitions])
        if isinstance(reply, DeviceList):
            return _with(reply, devices=[self._device(caller, one) for one in reply.devices])
        if isinstance(reply, LeaseList) and "leases" in self.kinds:
            return _with(reply, leases=[x for x in reply.leases if self._lease(caller, x)])
        if isinstance(reply, WaiterList) and "waiters" in self.kinds:
            return _with(reply, waiters=[w for w in reply.waiters if w.owner == caller.name])
        if isinstance(reply, JobList) and "waiters" in self.kinds:
            return _with(reply, jobs=[job for job in reply.jobs if job.owner == caller.name])
        if isinstance(reply, AllocationList) and "allocations" in self.kinds:
            return _with(reply, allocations=[a for a in reply.allocations if self._use(caller, a)])
        if isinstance(reply, AgentList) and "agents" in self.kinds:
            return _with(reply, agents=[])
        return reply

    # -- inside ------------------------------------------------------------------------------

    def _is_of(self, caller: Caller, entry: Entry) -> bool:
        record = entry.record
        if record is None:
            return True  # it is being made: nothing of it is told yet
        if caller.name in (record.owner, record.creator):
            return True
        if entry.site is not None and entry.site.closed.get(record.allocation) == caller.name:
            return caller.role is Role.SCHEDULER
        leases = [lease.record for lease in entry.leases.values()]
        leases += [fence.lease for fence in entry.fences.values()]
        return any(caller.name in (lease.owner, lease.creator) for lease in leases)

    def _may_attach(self, caller: Caller, entry: Entry) -> bool:
        if caller.role is Role.ADMINISTRATOR or self._is_of(caller, entry):
            return True
        return self._anonymous_endpoints and caller.name == ANONYMOUS

    def _sees(self, caller: Caller, name: str, kind: str) -> bool:
        entry = self._core.partitions.get(name)
        return kind not in self.kinds or entry is None or self._is_of(caller, entry)

    def _partition(self, caller: Caller, info: PartitionInfo) -> PartitionInfo:
        entry = self._core.partitions.get(info.name)
        if entry is None or self._may_attach(caller, entry):
            return info
        leases = [x for x in info.leases if self._lease(caller, x)]
        return _with(info, gcds=[[_bare(ref) for ref in gcd] for gcd in info.gcds], leases=leases)

    def _lease(self, caller: Caller, info: LeaseInfo) -> bool:
        return "leases" not in self.kinds or self._sees(caller, info.partition, "leases")

    def _device(self, caller: Caller, info: DeviceInfo) -> DeviceInfo:
        if "kept_for" in info.attributes and "waiters" in self.kinds:
            shown = {k: v for k, v in info.attributes.items() if k != "kept_for"}
            info = _with(info, attributes=shown)
        entry = self._core.partitions.get(info.partition) if info.partition else None
        if entry is not None and self._may_attach(caller, entry):
            return info
        hidden = "devices" in self.kinds or "partitions" in self.kinds
        name = "" if entry is not None and hidden else info.partition
        return _with(info, device=_bare(info.device), partition=name)

    def _use(self, caller: Caller, info: Any) -> bool:
        granted = self._granted(caller)
        return (
            info.name in granted
            if granted
            else caller.name in (info.scheduler or info.owner or caller.name,)
        )


def _bare(ref: DeviceRef) -> DeviceRef:
    """A device without where it answers."""
    return DeviceRef(
        domain=ref.domain,
        offset=ref.offset,
        machine=ref.machine,
        index=ref.index,
        arch_id=ref.arch_id,
        chip_id=ref.chip_id,
    )


def _with(value: _V, **changes: Any) -> _V:
    return msgspec.structs.replace(value, **changes)
