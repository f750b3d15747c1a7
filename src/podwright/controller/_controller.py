"""The controller: every call of podwright.v1, as the fronts make them.

A call that changes something goes on although its caller goes away: a step that has begun is
always brought to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from podwright.agents import Driver
from podwright.controller import _acquire as acquiring
from podwright.controller import _lease_expiry as ends
from podwright.controller import _partitions as partitions
from podwright.controller import _recovery as recovery
from podwright.controller import _repeated_requests as repeats
from podwright.controller import _views as views
from podwright.controller._administration import Administration, Machines
from podwright.controller._audit_calls import AuditCalls
from podwright.controller._caller import Caller, Role, in_name_of
from podwright.controller._core import Core, Entry
from podwright.controller._declared import declared
from podwright.controller._launch_moves import LaunchMoves
from podwright.controller._leases import to_info
from podwright.controller._own_host import Here
from podwright.controller._privacy import Privacy, Visible
from podwright.controller._reading_calls import ReadingCalls
from podwright.controller._reconciler import Reconciler
from podwright.controller._request_ids import Remembered, Requests
from podwright.controller._scheduler_moves import SchedulerMoves
from podwright.controller._scheduler_queues import SchedulerQueues
from podwright.controller._shielded import shielded
from podwright.controller._spec import CheckedSpec, described
from podwright.controller._waiting import Waiting
from podwright.controller._waiting_calls import WaitingCalls
from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.fabric import Cluster
from podwright.store import Opened, Store, backup_text
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    BackupReply,
    BackupRequest,
    CreateRequest,
    Empty,
    LeaseInfo,
    LeaseRequest,
    MoveRequest,
    MovesAllowed,
    MovesRequest,
    MoveTable,
    PartitionInfo,
    RemoveRequest,
    ResetRequest,
)

_T = TypeVar("_T")


@declared
class Controller(
    ReadingCalls, WaitingCalls, SchedulerQueues, SchedulerMoves, AuditCalls, Administration
):
    """The only owner of state. Methods are those of `wire.METHODS`, and raise PodwrightError.

    drivers: by machine name. allocations: cluster -> allocation -> machine names; a cluster
    without any has one, named like itself, with all of its machines. driver_timeout: seconds
    for one call to a machine. machines: how those come in that an administrator registers.
    visible: what callers see of others' things. sleep: how the timer waits. here: the host that it
    runs on, where it may look for itself.
    """

    def __init__(
        self,
        store: Store,
        clusters: Sequence[Cluster],
        drivers: Mapping[str, Driver],
        *,
        version: str,
        allocations: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        driver_timeout: float = 30.0,
        machines: Machines | None = None,
        visible: Visible | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        here: Here | None = None,
    ) -> None:
        self.version = version
        self._store = store
        self._sleep = sleep
        self._core = Core(
            store, clusters, drivers, allocations or {}, driver_timeout=driver_timeout
        )
        self._core.here = here
        self._requests = Requests(self._core.journal.later, self._core.now, self._core.spawn)
        self._waiting = Waiting(self._core)
        self._moves = LaunchMoves(self._core, self._waiting.named)
        self._oversee()
        self._administer(machines or Machines(), sleep)
        self._privacy = Privacy(
            self._core, visible or Visible(), lambda caller: self._users.allocations_of(caller)
        )
        self._keeper: asyncio.Task[None] | None = None
        self.epoch = 0  #: of the store's openings, once started
        self._state = "not started"

    async def start(self, opened: Opened | None = None) -> None:
        """Open the store, finish or undo what was interrupted, then serve.

        opened: what opening the store found, where that is done already.
        Raises wire.Unavailable or wire.Fenced when the store cannot be had.
        """
        opened = opened or await self._store.open()
        self.epoch = opened.epoch
        self._requests.load(opened.records)
        self._recall(opened)
        try:
            self._load_machines(opened)
            await recovery.recover(self._core, opened)
        except BaseException:
            await self._store.close()
            raise
        self._waiting.load(opened)
        self._moves.load(opened)
        keeper = Reconciler(self._core, self._sleep, self._sweep)
        self._keeper = asyncio.get_running_loop().create_task(keeper.run())
        self._watch_machines()
        self._state = ""

    async def close(self) -> None:
        """Take no more calls, bring steps under way to their end, and close the store."""
        if self._state == "closed":
            return
        self._state = "closed"
        if self._keeper is not None:
            self._keeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeper
        while self._core.tasks:
            await asyncio.wait(self._core.tasks)
        await self._leave_machines()
        with suppress(PodwrightError):
            await self._core.journal.flush()
        await self._store.close()

    @property
    def failure(self) -> PodwrightError | None:
        """Why the controller stopped for good (its store failed or is another's), or None."""
        return self._core.journal.failure

    @property
    def read_only(self) -> PodwrightError | None:
        """Why it only reads, for now (the disk of its store is full), or None."""
        return self._core.journal.full

    @property
    def idle(self) -> bool:
        """Whether there is no partition, no lease and no step under way."""
        core = self._core
        return not (core.partitions or core.leases or core.tasks or len(self._waiting))

    @property
    def moves(self) -> dict[str, int]:
        """How many launches moved since the start, and how many were asked to and did not."""
        return {"moves": self._moves.done, "failed_moves": self._moves.failed}

    @property
    def changes(self) -> int:
        """Grows with every change: what was seen at the same number is still so."""
        return self._core.journal.changes

    @property
    def private(self) -> frozenset[str]:
        """What callers see only of their own things, of `_privacy.KINDS`."""
        return self._privacy.kinds

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters, in the order of their definition."""
        return [site.cluster for site in self._core.inventory.sites.values()]

    @property
    def simulated(self) -> bool:
        """Whether any cluster is simulated."""
        return any(cluster.simulated for cluster in self.clusters)

    # -- partitions --------------------------------------------------------------------------

    async def create_partition(self, caller: Caller, request: CreateRequest) -> PartitionInfo:
        """Create a partition; the answer is ACTIVE or in ERROR, or PENDING without `wait`.

        Raises InvalidRequest, NotFound (cluster, allocation), AlreadyExists, NoCapacity, Denied.
        """
        spec = request.spec
        action = "create " + described(spec, self._core.inventory.noun)
        if request.owner and not request.job and caller.role is Role.SCHEDULER:
            raise InvalidRequest("a scheduler creates for a job, and none is named", asked=action)
        return await self._once(
            caller,
            "CreatePartition",
            spec.name,
            request.request_id,
            lambda: self._two_steps(
                partitions.begin_create(
                    self._core,
                    in_name_of(caller, request.owner, request.owner_uid, request.job, action),
                    CheckedSpec(spec, action, job=bool(request.job)),
                    creator=caller.name,
                    job=request.job,
                    duration=request.duration,
                ),
                lambda entry: partitions.finish_create(self._core, entry),
                request.wait,
            ),
            lambda known: self._made_before(known, request.wait),
        )

    async def reset_partition(self, caller: Caller, request: ResetRequest) -> PartitionInfo:
        """Reset a partition's devices; the answer is ACTIVE or in ERROR.

        With `force`, leases on it end; what they leave behind is cut off first, or stands in the
        way of all but administrators. Raises NotFound, Held, Denied.
        """
        return await self._once(
            caller,
            "ResetPartition",
            request.name,
            request.request_id,
            lambda: self._two_steps(
                partitions.begin_reset(self._core, caller, request),
                lambda entry: partitions.finish_reset(
                    self._core, caller, entry, relocatable=request.relocatable
                ),
                request.wait,
            ),
            lambda known: self._made_before(known, request.wait),
        )

    async def remove_partition(self, caller: Caller, request: RemoveRequest) -> Empty:
        """Remove a partition; its devices are reset first.

        With `force`, leases on it end, and machines that do not answer are ignored: nobody gets
        their devices until they were reset. Raises NotFound, Held, Denied, WrongState.
        """
        return await self._once(
            caller,
            "RemovePartition",
            request.name,
            request.request_id,
            lambda: self._remove(caller, request),
            lambda known: repeats.removed_before(self._core, known, wait=request.wait),
        )

    # -- leases ------------------------------------------------------------------------------

    async def acquire(self, caller: Caller, request: AcquireRequest) -> AcquireReply:
        """Find or create a partition and hold it.

        Raises InvalidRequest, NotFound, Held, WrongState, NoCapacity, Denied, Fenced (parent).
        """
        return await self._once(
            caller,
            "Acquire",
            "",
            request.request_id,
            lambda: self._acquire(caller, request),
            self._acquired_before,
        )

    async def renew(self, caller: Caller, request: LeaseRequest) -> LeaseInfo:
        """Move a lease's end to a full ttl from now. Raises Fenced when it is over, Denied."""
        if request.hosts:
            return await self._run(ends.renew(self._core, caller, request))
        return await ends.renew(self._core, caller, request)

    async def release(self, caller: Caller, request: LeaseRequest) -> Empty:
        """End a lease and those in it, or say more about one that is over and FENCING.

        Raises Fenced when it is over for good, Denied, InvalidRequest.
        """
        await self._run(ends.release(self._core, caller, request))
        return Empty()

    async def move(self, caller: Caller, request: MoveRequest) -> PartitionInfo:
        """Give a launch's partition the devices that it was asked to move to; nothing of it runs.

        Raises Fenced, Denied. It stays where it is if that is not wanted any more.
        """
        return self._info(await self._run(self._moves.move(caller, request)))

    async def show_moves(self, caller: Caller, request: MovesRequest) -> MoveTable:
        """Which launches are asked to move, and which would be."""
        return self._moves.show()

    async def allow_moves(self, caller: Caller, request: MovesAllowed) -> MoveTable:
        """Ask launches to move from now on, or none."""
        await self._run(self._moves.allow(request.allowed))
        return self._moves.show()

    # -- administration ----------------------------------------------------------------------

    async def backup(self, caller: Caller, request: BackupRequest) -> BackupReply:
        """The store as of one instant. Raises Denied for all but administrators."""
        snapshot = await self._store.read()
        return BackupReply(content=await asyncio.to_thread(backup_text, snapshot))

    # -- inside ------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._waiting.sweep()
        self._moves.tick()

    def _check(self) -> None:
        if self._state:
            raise Unavailable(f"the server is {self._state}", would_work="try again in a moment")
        if self._core.journal.full is None:  # else it can be read, and a change fails by itself
            self._core.journal.check()

    async def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something that must not stop half way when its caller goes away."""
        return await shielded(self._core.spawn(work))

    async def _once(
        self,
        caller: Caller,
        method: str,
        name: str,
        request_id: str,
        work: Callable[[], Coroutine[Any, Any, _T]],
        again: Callable[[Remembered], Awaitable[_T | None]],
    ) -> _T:
        """Do something once, however often it is asked for under one id.

        name: the partition that it is about, where that is known. again: what to answer when
        it was done before; None: its effect is gone, do it anew.
        """
        if not request_id:
            return await self._run(work())
        return await self._requests.once(caller.name, method, name, request_id, work, again)

    async def _made_before(self, known: Remembered, wait: bool) -> PartitionInfo:
        return self._info(await repeats.made_before(self._core, known, wait=wait))

    async def _acquired_before(self, known: Remembered) -> AcquireReply | None:
        core = self._core
        found = await repeats.acquired_before(core, known)
        if found is None:
            return None
        entry, lease = found
        return AcquireReply(
            lease=to_info(lease, entry.known.size, core.now()),
            partition=self._info(entry),
            created=known.created,
        )

    async def _two_steps(
        self,
        begin: Awaitable[Entry],
        finish: Callable[[Entry], Coroutine[Any, Any, None]],
        wait: bool,
    ) -> PartitionInfo:
        entry = await begin
        if wait:
            await finish(entry)
        else:
            self._core.spawn(self._aside(finish(entry)))
        if entry.record is None:
            raise self._core.missing(entry.name, f"get partition {entry.name}")
        return self._info(entry)

    async def _remove(self, caller: Caller, request: RemoveRequest) -> Empty:
        entry = await partitions.begin_remove(
            self._core, caller, request.name, force=request.force, job=request.job
        )
        finish = partitions.finish_remove(self._core, caller, entry, force=request.force)
        if request.wait:
            await finish
        else:
            self._core.spawn(self._aside(finish))
        return Empty()

    async def _acquire(self, caller: Caller, request: AcquireRequest) -> AcquireReply:
        core = self._core
        entry, record, lease, created = await acquiring.acquire(core, caller, request)
        return AcquireReply(
            lease=to_info(lease, record.size, core.now()),
            partition=views.partition_info(core, entry, record, self.version),
            created=created,
        )

    async def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        with suppress(PodwrightError):  # it shows in the partition's state
            await work
