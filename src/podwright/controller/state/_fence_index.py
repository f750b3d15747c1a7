"""Fences in memory: the partition of each, and which machines have cut it off."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from podwright.controller.state._partition_index import (
    PartitionEntry,
    PartitionIndex,
    holders_of,
    without,
)
from podwright.controller.state._read_only_mapping import ReadOnlyMapping
from podwright.controller.state._records import FenceRecord
from podwright.controller.state._sorted_names import SortedNames


class FenceIndex(ReadOnlyMapping[PartitionEntry]):
    """The partition of each fence, by the id of the lease that left it.

    Whoever adds or removes a fence, or waits for a machine to cut one off, holds the lock of the
    fence's partition. So a fence that was there before the call to a machine is there when the call
    has answered, and what `note_cut` records concerns the fence that was meant. It is not written
    down: after a restart all machines cut off once more.
    """

    def __init__(self, partitions: PartitionIndex) -> None:
        super().__init__()
        self._partitions = partitions
        self._cut: dict[str, set[str]] = {}
        self.ids = SortedNames()  #: of all fences, in order

    def cut(self, fence_id: str) -> AbstractSet[str]:
        """The machines that have cut off the old epoch of a fence."""
        return self._cut[fence_id]

    def note_cut(self, fence_id: str, machines: Iterable[str]) -> None:
        """Note that these machines have cut off the old epoch of a fence."""
        self._cut[fence_id].update(machines)

    def add(self, entry: PartitionEntry, fence: FenceRecord) -> None:
        """Add the fence of an ended lease; nobody gets its devices yet."""
        entry.fences = {**entry.fences, fence.id: fence}
        self._by_name[fence.id] = entry
        self._cut[fence.id] = set()
        self.ids.add(fence.id)
        self._partitions.note_holders(entry, holders_of(fence.lease), 1)

    def remove(self, entry: PartitionEntry, fence_ids: Iterable[str]) -> None:
        """Forget fences of a partition, by their ids."""
        for fence_id in fence_ids:
            fence = entry.fences[fence_id]
            entry.fences = without(entry.fences, fence_id)
            del self._by_name[fence_id], self._cut[fence_id]
            self.ids.discard(fence_id)
            self._partitions.note_holders(entry, holders_of(fence.lease), -1)
