"""Who may know of what: the decision behind `--private-data`, asked where a name is looked up.

The rule is noninterference. What a caller may not know of is not found, and the answer is that for
a name that nothing has: the same error, the same words, as soon. So a lookup in the name of a
caller goes through `ControllerState.find` and its like, which ask here, and lists are filtered
before they are cut into pages, since the token of a page names what it ends with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._records import FenceRecord, PartitionRecord


class VisiblePartition(Protocol):
    """What is known of a partition in memory (`PartitionEntry`)."""

    makers: tuple[str, ...]
    record: PartitionRecord | None
    cluster: IndexedCluster | None
    leases: Mapping[str, HeldLease]
    fences: Mapping[str, FenceRecord]


def belongs_to_caller(caller: Caller, partition_entry: VisiblePartition) -> bool:
    """Whether a partition is the caller's: its owner or creator, who has a lease on it, the
    scheduler of its allocation, an administrator."""
    record = partition_entry.record
    if caller.role is Role.ADMINISTRATOR:
        return True
    if record is None:  # it is being made
        return caller.name in partition_entry.makers
    if caller.name in (record.owner, record.creator):
        return True
    if (
        partition_entry.cluster is not None
        and partition_entry.cluster.closed.get(record.allocation) == caller.name
    ):
        return caller.role is Role.SCHEDULER
    lease_records = [lease.record for lease in partition_entry.leases.values()]
    lease_records += [fence.lease for fence in partition_entry.fences.values()]
    return any(caller.name in (lease.owner, lease.creator) for lease in lease_records)


@dataclass(frozen=True)
class Visibility:
    """What callers may know of. private: the kinds of `_privacy.PRIVATE_KINDS` that each sees only
    of its own.
    """

    private: frozenset[str] = frozenset()

    def partition(self, caller: Caller, partition_entry: VisiblePartition) -> bool:
        """Whether a caller may know of a partition."""
        return "partitions" not in self.private or belongs_to_caller(caller, partition_entry)

    def all_partitions(self, caller: Caller) -> bool:
        """Whether a caller may know of every partition."""
        return "partitions" not in self.private or caller.role is Role.ADMINISTRATOR

    def all_leases(self, caller: Caller) -> bool:
        """Whether a caller may know of every lease."""
        return (
            self.private.isdisjoint(("partitions", "leases")) or caller.role is Role.ADMINISTRATOR
        )

    def leases(self, caller: Caller, partition_entry: VisiblePartition) -> bool:
        """Whether a caller may know of the leases and fences on a partition."""
        return self.private.isdisjoint(("partitions", "leases")) or belongs_to_caller(
            caller, partition_entry
        )

    def waiter(self, caller: Caller, owner: str) -> bool:
        """Whether a caller may know of a waiter of this owner's."""
        if caller.role is Role.ADMINISTRATOR:
            return True
        return self.user_sees_waiter(caller.name, owner)

    def user_sees_waiter(self, user: str, owner: str) -> bool:
        """Whether a user may be told of a waiter of this owner's."""
        return "waiters" not in self.private or user == owner

    @property
    def user_sees_all_partitions(self) -> bool:
        """Whether a user may be told of every partition."""
        return "partitions" not in self.private

    def user_sees_partition(self, user: str, record: PartitionRecord) -> bool:
        """Whether a user may be told of a partition, and whether its end counts for his requests:
        the time at which one of his starts would tell it."""
        return "partitions" not in self.private or user in (record.owner, record.creator)

    def allocation(
        self,
        caller: Caller,
        cluster: IndexedCluster,
        allocation_name: str,
        granted_allocations: tuple[str, ...],
    ) -> bool:
        """Whether a caller may know of an allocation. granted_allocations: those that it may use;
        none: all.
        """
        if caller.role is Role.ADMINISTRATOR or "allocations" not in self.private:
            return True
        if granted_allocations:
            return allocation_name in granted_allocations
        user = cluster.closed.get(allocation_name) or cluster.owned.get(allocation_name)
        return user in (None, "", caller.name)
