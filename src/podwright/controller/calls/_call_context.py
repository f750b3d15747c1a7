"""What the calls of the controller work with, as one value that every call is handed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podwright.controller.administration._audit import Audit
from podwright.controller.administration._privacy import Privacy
from podwright.controller.administration._users import Users
from podwright.controller.calls import _object_replies as views
from podwright.controller.hardware._discovery import Discovery
from podwright.controller.hardware._fabric_journal import StoredFabricJournal
from podwright.controller.hardware._fabric_watch import FabricWatch
from podwright.controller.hardware._heartbeats import Heartbeats
from podwright.controller.hardware._registry import Registry
from podwright.controller.moves._launch_moves import LaunchMoves
from podwright.controller.queue._queue_membership import Waiting
from podwright.controller.queue._reported_queues import ReportedQueues
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._request_ids import Requests
from podwright.controller.state._shielded_tasks import await_shielded
from podwright.wire import PartitionInfo

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts of a controller. version: of the server, as partitions name it.

    introduce: called with the server's name, which its store keeps, and the number of this start.
    changing: what an administrator changes, one change at a time. starting: seconds in which an
    agent that is to be registered may come up. reported: the queues of schedulers.
    """

    version: str
    state: ControllerState
    requests: Requests
    waiting: Waiting
    moves: LaunchMoves
    audit: Audit
    registry: Registry
    heartbeats: Heartbeats
    users: Users
    discovery: Discovery
    privacy: Privacy
    introduce: Callable[[str, int], None]
    fabric_journal: StoredFabricJournal
    fabric_watch: FabricWatch | None
    starting: float
    reported: ReportedQueues = field(default_factory=ReportedQueues)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run work to its end, even if its caller disconnects."""
        return await await_shielded(self.state.spawn(work))

    def info(self, entry: PartitionEntry) -> PartitionInfo:
        """A partition as callers see it."""
        return views.partition_info(self.state, entry, entry.known, self.version)

    def owner(self, object_name: str) -> str:
        """The owner of the partition or waiter of this name; empty if there is none."""
        entry, waiter = self.state.partitions.get(object_name), self.waiting.named(object_name)
        if entry is not None and entry.record is not None:
            return entry.record.owner
        return waiter.record.name if waiter is not None else ""
