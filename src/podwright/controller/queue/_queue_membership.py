"""The queue as callers use it: they join, ask for their state, and leave.

A client asks repeatedly; one that stops asking leaves the queue after a while. A waiter is stored
before its client learns its id, so a restart keeps its place. What a waiter was given stays in its
record until its client acknowledges it, and is given back where the client does not
(`_unacknowledged_grants`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from podwright.controller.administration._audit import Audit
from podwright.controller.partitions import _acquire as acquiring
from podwright.controller.partitions import _lease_lifetime as ends
from podwright.controller.partitions import _partition_lifecycle as partitions
from podwright.controller.queue._priority_queue import WaitingQueue
from podwright.controller.queue._unacknowledged_grants import (
    ServingWaiter,
    UnacknowledgedWaiters,
    put_waiter,
    restore_created,
    restore_lease,
)
from podwright.controller.queue._waiter import Waiter, WaiterRecord
from podwright.controller.queue._waiter_view import waiter_info, wanted_in_words
from podwright.controller.requests._device_claims import DeviceClaim, claim_new
from podwright.controller.state._audit_intents import intent_scope
from podwright.controller.state._caller import Caller, Role, check_change, check_creator
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._leases import HeldLease
from podwright.controller.state._partition_index import PartitionEntry
from podwright.controller.state._records import WAITER, decode
from podwright.controller.state._request_ids import (
    REQUEST_KIND,
    RememberedRequest,
    RequestId,
    Requests,
    carry_record_of,
)
from podwright.errors import (
    Denied,
    Fenced,
    Held,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
)
from podwright.store import Delete, Opened
from podwright.wire import LeaseRequest, WaiterInfo, WaitRequest

GONE_AFTER_S: Final = 30.0  #: seconds without a question
#: Seconds in which a client acknowledges what it was given, from its last question or from the
#: server's start on. Clients look for a server for 25 s after theirs has gone.
ACKNOWLEDGED_WITHIN_S: Final = 45.0
MAX_WAITERS: Final = 20_000  #: waiters


class Waiting:
    """The queue and the calls that concern it.

    acknowledged_within: seconds after which what a client does not acknowledge is given back.
    """

    def __init__(
        self,
        state: ControllerState,
        audit: Audit,
        requests: Requests,
        *,
        acknowledged_within: float = ACKNOWLEDGED_WITHIN_S,
    ) -> None:
        self._state, self._audit, self._requests = state, audit, requests
        self._acknowledged_within = acknowledged_within
        self._waiters: dict[str, Waiter] = {}
        self.unacknowledged = UnacknowledgedWaiters(state)
        self.line = WaitingQueue(state, self._start_serving)

    def __len__(self) -> int:
        return len(self._waiters)

    def named(self, name: str) -> Waiter | None:
        """The waiter with an id, whether it waits or was served."""
        waiter = self._waiters.get(name)
        return waiter if waiter is not None and waiter.error is None else None

    def waits(self, waiter_id: str) -> bool:
        """Whether a waiter with this id is still known."""
        return waiter_id in self._waiters

    def load(self, opened: Opened) -> None:
        """Load the waiters of before a restart, with their places and what they were given."""
        state = self._state
        for (record_kind, _), record_bytes in sorted(opened.records.items()):
            if record_kind != WAITER:
                continue
            record = decode(WaiterRecord, record_bytes)
            waiter = self._waiters[record.id] = Waiter(record, "", state.now())
            waiter.action = wanted_in_words(state, waiter)
            if record.lease:
                waiter.starting = True
                state.spawn(self._restore_lease(waiter))
            elif restore_created(state, waiter):
                self.unacknowledged.add(waiter)
            else:
                acquire_request = record.acquire
                if acquire_request is not None and acquire_request.spec.name in state.partitions:
                    waiter.target = acquire_request.spec.name
                self.line.add(waiter)
        if state.journal.full is None:
            self.line.start_ready()

    async def _restore_lease(self, waiter: Waiter) -> None:
        try:
            if await restore_lease(self._state, waiter):
                self.unacknowledged.add(waiter)
            else:
                self._start_serving(waiter, None)
        except PodwrightError as error:
            waiter.starting = False
            waiter.fail(error)

    async def join(self, caller: Caller, request: WaitRequest) -> Waiter:
        """Add a waiter to the queue, or start it at once. One request id adds one waiter.

        Raises InvalidRequest, Denied, and NoCapacity if the queue is full.
        """
        inner_request = request.create or request.acquire
        request_id = request.request_id or (
            inner_request.request_id if inner_request is not None else ""
        )

        async def joined() -> Waiter:
            return await self._join_queue(caller, request, request_id)

        async def joined_before(remembered: RememberedRequest) -> Waiter:
            waiter = self._waiters.get(remembered.name)
            if waiter is None or waiter.cancelled:
                raise self._nobody_waits_error(remembered.name)
            return waiter

        full_request_id = RequestId(caller.name, "Wait", request_id)
        return await self._requests.once(full_request_id, joined, joined_before)

    async def hear(self, caller: Caller, waiter: Waiter | str, timeout: float) -> Waiter:
        """How a waiter stands, within a timeout in seconds. waiter: it, or its id.

        Raises what it asked for raises, except that NoCapacity and Held are waited for.
        """
        if isinstance(waiter, str):
            waiter = self._find_waiter(caller, waiter)
        waiter.seen = self._state.now()
        waiter.asking += 1
        try:
            if not waiter.settled and (timeout or waiter.starting):
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout):
                        await waiter.changed.wait()
        finally:
            waiter.asking -= 1
            waiter.seen = self._state.now()
        if waiter.error is not None:
            await self._record_refusal(waiter)
            raise waiter.error
        if waiter.partition:
            if waiter.reported or not waiter.record.acknowledges:
                await self.unacknowledged.acknowledge(waiter)
            waiter.reported = True
        return waiter

    async def _record_refusal(self, waiter: Waiter) -> None:
        """Before its client hears that it failed: a restart must not serve it after that.

        It stays in memory for a while, for a client that asks again since the answer got lost.
        """
        if not waiter.refused and waiter.id in self._waiters:
            await self._state.journal.commit(
                [Delete(WAITER, waiter.id), Delete(REQUEST_KIND, self._request_key(waiter))]
            )
            waiter.refused = True

    def _request_key(self, waiter: Waiter) -> str:
        record = waiter.record
        return RequestId(record.name, "Wait", record.request_id).key

    async def leave(self, caller: Caller, name: str) -> None:
        """Leave the queue; what was given and not acknowledged is given back. Durable on return."""
        waiter = self._find_waiter(caller, name)
        waiter.cancelled = True
        self.line.remove(waiter)
        self.unacknowledged.drop(waiter)
        if waiter.owed:
            await self._give_back_grant(waiter)
        await self._state.journal.commit([Delete(WAITER, name)])
        self._forget_waiter(waiter)
        if waiter.asking and not waiter.settled:  # somebody else took it out
            waiter.fail(self._nobody_waits_error(name))
        self.line.start_ready()

    def sweep(self) -> None:
        """Remove waiters whose clients stopped asking."""
        state, now = self._state, self._state.now()
        for waiter in self._waiters.values():
            patience_s = self._acknowledged_within if waiter.owed else GONE_AFTER_S
            if waiter.seen < now - patience_s and not (waiter.asking or waiter.cancelled):
                state.spawn(self._quietly_leave(waiter))
        if self.line.guest_queue:
            self.line.guest_queue.sweep()
            self.line.start_ready()

    def info(self, waiter: Waiter, queue_position: int = 0) -> WaiterInfo:
        """A waiter as callers see it. queue_position: its place in the queue, if that is known
        already.
        """
        return waiter_info(self._state, self.line, waiter, queue_position)

    # -- joining and starting ----------------------------------------------------------------

    async def _join_queue(self, caller: Caller, request: WaitRequest, request_id: str) -> Waiter:
        state = self._state
        if (request.create is None) == (request.acquire is None):
            raise InvalidRequest(
                "wait is for one request, to create or to acquire",
                operation="wait",
                would_work="give one of them",
            )
        check_creator(caller, "wait")
        if request.priority > 0 and caller.role not in (Role.ADMINISTRATOR, Role.SCHEDULER):
            raise Denied(
                f"priority {request.priority} is above 0",
                operation="wait",
                would_work="use 0 or less, or ask an administrator",
                priority=request.priority,
            )
        if len(self._waiters) >= MAX_WAITERS:
            self._forget_refused()
        if len(self._waiters) >= MAX_WAITERS:
            raise NoCapacity(
                f"{MAX_WAITERS} wait already", operation="wait", would_work="try again later"
            )
        record = WaiterRecord(
            id=f"w{state.epochs.next():x}",
            since=state.now(),
            name=caller.name,
            role=caller.role,
            uid=-1 if caller.uid is None else caller.uid,
            origin=caller.origin,
            priority=request.priority,
            create=request.create,
            acquire=request.acquire,
            request_id=request_id,
            acknowledges=request.acknowledges,
            names_given=True,
        )
        # Before anybody is told the id: a place that was given outlives the server.
        await state.journal.commit([put_waiter(record)])
        waiter = Waiter(record, "", state.now())
        waiter.action = wanted_in_words(state, waiter)
        self._waiters[waiter.id] = waiter
        if waiter.creates and self.line.guest_queue.holds_back(waiter.spec):
            waiter.waited = True
            self.line.add(waiter)
        else:
            self._start_serving(waiter, None)
        return waiter

    def _start_serving(self, waiter: Waiter, claim: DeviceClaim | None) -> None:
        waiter.starting = True
        self._state.spawn(self._serve_waiter(waiter, claim))

    async def _serve_waiter(self, waiter: Waiter, claim: DeviceClaim | None) -> None:
        """Carry out a waiter's request in its name; if it is refused for now, wait again."""
        record = waiter.record
        action = "CreatePartition" if record.create is not None else "Acquire"
        intent = self._audit.new_intent(waiter.caller, action, waiter.spec.name, record.name)
        serving_waiter = ServingWaiter(waiter)
        carry_record_of(serving_waiter)  # and not by the request of whoever freed the devices
        with intent_scope(intent):
            await self._carry_out_request(waiter, serving_waiter, claim)
        if waiter.partition:
            detail = f"lease {waiter.lease}" if waiter.lease else ""
            self._audit.record_event(
                waiter.caller,
                action,
                waiter.partition,
                owner=record.name,
                detail=detail,
                intent=intent,
            )
        elif intent.number or waiter.error is not None:
            self._audit.record_event(
                waiter.caller,
                action,
                waiter.spec.name,
                owner=record.name,
                error=waiter.error,
                intent=intent,
            )

    async def _carry_out_request(
        self, waiter: Waiter, serving_waiter: ServingWaiter, claim: DeviceClaim | None
    ) -> None:
        state, record = self._state, waiter.record
        try:
            if record.create is not None:
                partition_entry, lease = await self._create_partition(waiter, claim), None
            else:
                partition_entry, lease = await self._acquire(waiter, claim)
        except (NoCapacity, Held) as error:
            waiter.starting = False
            if waiter.cancelled:
                return
            waiter.waited = True
            waiter.target = str(error.data["partition"]) if isinstance(error, Held) else ""
            self.line.add(waiter)
            if not waiter.target:
                self.line.start_ready()
            return
        except PodwrightError as error:
            waiter.starting = False
            if state.journal.full is None:
                waiter.fail(error)
            elif not waiter.cancelled:  # it is still written down, and goes on once there is room
                self.line.add(waiter)
            return
        assert serving_waiter.given is not None  # no partition and no lease without a commit
        waiter.record = serving_waiter.given
        waiter.give(partition_entry.name, lease.record.id if lease else "", created=waiter.created)
        if waiter.waited:
            state.record_event(
                "Start", partition_entry.name, record.name, f"{waiter.id} had waited for it"
            )
        if waiter.cancelled:
            await self._give_back_grant(waiter)
            state.journal.later(Delete(WAITER, waiter.id))
        else:
            self.unacknowledged.add(waiter)

    async def _create_partition(self, waiter: Waiter, claim: DeviceClaim | None) -> PartitionEntry:
        request = waiter.record.create
        assert request is not None
        state, caller, duration = self._state, waiter.caller, request.duration
        claim = claim_new(state, caller, waiter.checked, duration=duration, claim=claim)
        entry = await partitions.begin_create(state, caller, claim, duration=duration)
        await partitions.finish_create(state, entry)
        waiter.created = True
        return entry

    async def _acquire(
        self, waiter: Waiter, claim: DeviceClaim | None
    ) -> tuple[PartitionEntry, HeldLease]:
        request = waiter.record.acquire
        assert request is not None
        acquired = await acquiring.acquire(self._state, waiter.caller, request, claim)
        waiter.created = acquired.created
        return acquired.entry, acquired.lease

    # -- leaving -----------------------------------------------------------------------------

    def _find_waiter(self, caller: Caller, waiter_id: str) -> Waiter:
        waiter = self._waiters.get(waiter_id)
        if (
            waiter is None
            or waiter.cancelled
            or not self._state.sight.waiter(caller, waiter.record.name)
        ):
            raise self._nobody_waits_error(waiter_id)
        check_change(caller, waiter.record.name, f"wait as {waiter_id}")
        return waiter

    def _nobody_waits_error(self, waiter_id: str) -> NotFound:
        return NotFound(
            f"nobody waits as {waiter_id[:80]}",
            operation="wait",
            would_work=f"join again: who does not ask for {GONE_AFTER_S:g} s has left the queue",
        )

    def _forget_waiter(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter.id, None)
        if waiter.refused and waiter.record.request_id:
            self._requests.forget(self._request_key(waiter))

    def _forget_refused(self) -> None:
        """Forget waiters that failed and whose clients know it."""
        for waiter in [candidate for candidate in self._waiters.values() if candidate.refused]:
            self._forget_waiter(waiter)

    async def _quietly_leave(self, waiter: Waiter) -> None:
        if waiter.id in self._waiters:
            with suppress(PodwrightError):
                await self.leave(waiter.caller, waiter.id)

    async def _give_back_grant(self, waiter: Waiter) -> None:
        state = self._state
        with suppress(PodwrightError):
            if waiter.lease:
                if (lease := state.leases.get(waiter.lease)) is not None:
                    request = LeaseRequest(id=waiter.lease, epoch=lease.record.epoch)
                    with suppress(Fenced):
                        await ends.release(state, waiter.caller, request)
                return
            entry = await partitions.begin_remove(
                state, waiter.caller, waiter.partition, force=False
            )
            await partitions.finish_remove(state, waiter.caller, entry, force=True)
