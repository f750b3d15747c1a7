"""Fences in memory: the partition of each, and which machines have cut it off."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from podwright.controller.state._partition_index import Entry
from podwright.controller.state._read_only_mapping import ReadOnlyMapping
from podwright.controller.state._records import FenceRecord


class FenceIndex(ReadOnlyMapping[Entry]):
    """The partition of each fence, by the id of the lease that left it.

    Whoever adds or removes a fence, or waits for a machine to cut one off, holds the lock of the
    fence's partition. So a fence that was there before the call to a machine is there when the call
    has answered, and what `note_cut` records concerns the fence that was meant. It is not written
    down: after a restart all machines cut off once more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cut: dict[str, set[str]] = {}

    def cut(self, fence: str) -> AbstractSet[str]:
        """The machines that have cut off the old epoch of a fence."""
        return self._cut[fence]

    def note_cut(self, fence: str, machines: Iterable[str]) -> None:
        """Note that these machines have cut off the old epoch of a fence."""
        self._cut[fence].update(machines)

    def add(self, entry: Entry, fence: FenceRecord) -> None:
        """Add the fence of an ended lease; nobody gets its devices yet."""
        entry.fences[fence.id] = fence
        self._by_name[fence.id] = entry
        self._cut[fence.id] = set()

    def remove(self, entry: Entry, fences: Iterable[str]) -> None:
        """Forget fences of a partition, by their ids."""
        for name in fences:
            del entry.fences[name], self._by_name[name], self._cut[name]
