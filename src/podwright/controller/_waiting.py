"""Waiting, as callers see it: join, ask how it goes, leave.

A waiter asks again and again; one who stops has left after a while, and what it may have got in
that while is given back. Waiters are written down before they are told their id, so a restart
keeps places.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec

from podwright.controller import _acquire as acquiring
from podwright.controller import _lease_expiry as ends
from podwright.controller import _partitions as partitions
from podwright.controller._caller import Caller, Role, check_change, check_creator
from podwright.controller._core import Core, Entry
from podwright.controller._leases import HeldLease
from podwright.controller._records import decode
from podwright.controller._reservation import Taken
from podwright.controller._shielded import shielded
from podwright.controller._spec import described
from podwright.controller._waiter import WAITER, Waiter, WaiterRecord
from podwright.controller._waiting_queue import WaitingQueue
from podwright.errors import (
    Denied,
    Fenced,
    Held,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PodwrightError,
)
from podwright.store import Delete, Opened, Put
from podwright.wire import LeaseRequest, WaiterInfo, WaitRequest

MAX_WAIT: Final = 60.0  #: seconds of one answer
GONE_AFTER: Final = 30.0  #: seconds without a question
MOST: Final = 20_000  #: waiters


class Waiting:
    """The waiting line and those who ask about it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiters: dict[str, Waiter] = {}
        self.line = WaitingQueue(core, self._start)

    def __len__(self) -> int:
        return len(self._waiters)

    def named(self, name: str) -> Waiter | None:
        """Who waits under an id."""
        return self._waiters.get(name)

    def load(self, opened: Opened) -> None:
        """Those who waited before a restart keep their places."""
        for (kind, _), body in sorted(opened.records.items()):
            if kind == WAITER:
                record = decode(WaiterRecord, body)
                waiter = Waiter(record, "", self._core.now())
                waiter.action = _described(self._core, waiter)
                self._waiters[record.id] = waiter
                if self._was_served(waiter):
                    continue
                acquire = record.acquire
                if acquire is not None and acquire.spec.name in self._core.partitions:
                    waiter.target = acquire.spec.name
                self.line.add(waiter)
        self.line.look()

    def _was_served(self, waiter: Waiter) -> bool:
        """Whether its partition was made, and only the word of it was lost with the server.

        It stays, asked for or not: its owner may have been told of it already.
        """
        record, core = waiter.record, self._core
        entry = core.partitions.get(waiter.spec.name) if record.create is not None else None
        made = entry.record if entry is not None else None
        if made is None or made.owner != record.name or made.created_at < record.since:
            return False
        waiter.partition = made.name
        waiter.created = waiter.delivered = True
        waiter.changed.set()
        core.journal.later(Delete(WAITER, waiter.id))
        return True

    async def wait(self, caller: Caller, request: WaitRequest) -> Waiter:
        """Join, or ask again; the waiter as it stands within the request's timeout.

        Raises what it asked for raises, except that NoCapacity and Held are waited for.
        """
        if not 0 <= request.timeout <= MAX_WAIT:
            raise InvalidRequest(
                f"an answer cannot take {request.timeout:g} s",
                asked="wait",
                would_work=f"use a timeout from 0 to {MAX_WAIT:g} s, and ask again",
            )
        waiter = self._find(caller, request.id) if request.id else await self._join(caller, request)
        waiter.seen = self._core.now()
        waiter.asking += 1
        try:
            if not waiter.ended and (request.timeout or waiter.starting):
                with suppress(TimeoutError):
                    async with asyncio.timeout(request.timeout):
                        await waiter.changed.wait()
        finally:
            waiter.asking -= 1
            waiter.seen = self._core.now()
        if waiter.error is not None:
            self._forget(waiter)
            raise waiter.error
        waiter.delivered = bool(waiter.partition)
        return waiter

    async def leave(self, caller: Caller, name: str) -> None:
        """Leave the line; what was got meanwhile and never heard of is given back."""
        waiter = self._find(caller, name)
        self.line.remove(waiter)
        if waiter.starting:
            waiter.gone = True  # given back when it is there
        elif waiter.partition and not waiter.delivered:
            await self._give_back(waiter)
        self._forget(waiter)
        if waiter.asking and not waiter.ended:  # somebody else took it out
            waiter.fail(self._nobody(name))
        self.line.look()

    def sweep(self) -> None:
        """Those who stopped asking have left."""
        core = self._core
        before = core.now() - GONE_AFTER
        late = [w for w in self._waiters.values() if w.seen < before and not w.asking]
        for waiter in late:
            core.spawn(self._quietly_leave(waiter))

    def info(self, waiter: Waiter, place: int = 0) -> WaiterInfo:
        """A waiter as others see it. place: in the line, if that is known already."""
        core, record = self._core, waiter.record
        state = "DONE" if waiter.partition else "STARTING" if waiter.starting else "WAITING"
        kept = next((r for r in core.reservations.values() if r.waiter == waiter.id), None)
        moves = [pending.until for pending in core.moves.values() if pending.waiter == waiter.id]
        if state != "WAITING":
            return _info(record, waiter.action, state)
        if not place:
            place = 1 + next((i for i, w in enumerate(self.line) if w is waiter), 0)
        estimate = 0.0
        if waiter.target:
            needs = f"partition {waiter.target}, which is held"
        elif kept is None:
            needs = "those ahead, and devices that are free"
        else:
            goal = kept.goal
            there = [  # of those that stood there when the place was chosen
                entry.record
                for name in goal.partitions
                if (entry := core.partitions.get(name)) is not None and entry.record is not None
            ]
            named = [one.name for one in there if core.may_name(record.name, one)]
            standing = " and ".join(named[:5]) or (
                "other partitions" if there else "devices that are being reset"
            )
            wanted = sum(block.size for block in goal.blocks)
            by = f"{datetime.fromtimestamp(max(moves)):%H:%M:%S}" if moves else ""
            what = f"move to other devices by {by} at the latest" if moves else "end"
            needs = f"{standing} to {what} ({kept.kept} of {wanted} devices are there)"
            if goal.known:
                estimate = max(0.0, goal.starts_at - core.now())
        return msgspec.structs.replace(
            _info(record, waiter.action, state),
            place=place,
            needs=needs,
            estimate=estimate,
            reserved=kept.kept if kept else 0,
        )

    # -- joining and starting ----------------------------------------------------------------

    async def _join(self, caller: Caller, request: WaitRequest) -> Waiter:
        core = self._core
        if (request.create is None) == (request.acquire is None):
            raise InvalidRequest(
                "wait is for one request, to create or to acquire",
                asked="wait",
                would_work="give one of them",
            )
        check_creator(caller, "wait")
        if request.priority > 0 and caller.role not in (Role.ADMINISTRATOR, Role.SCHEDULER):
            raise Denied(
                f"priority {request.priority} is above 0",
                asked="wait",
                would_work="use 0 or less, or ask an administrator",
                priority=request.priority,
            )
        if len(self._waiters) >= MOST:
            raise NoCapacity(f"{MOST} wait already", asked="wait", would_work="try again later")
        record = WaiterRecord(
            id=f"w{core.next_epoch():x}",
            since=core.now(),
            name=caller.name,
            role=caller.role,
            uid=-1 if caller.uid is None else caller.uid,
            origin=caller.origin,
            priority=request.priority,
            create=request.create,
            acquire=request.acquire,
        )
        # Before anybody is told the id: a place that was given outlives the server.
        written = core.journal.commit([Put(WAITER, record.id, msgspec.json.encode(record))])
        await shielded(core.spawn(written))
        waiter = Waiter(record, "", core.now())
        waiter.action = _described(core, waiter)
        self._waiters[waiter.id] = waiter
        self._start(waiter, None)
        return waiter

    def _start(self, waiter: Waiter, taken: Taken | None) -> None:
        waiter.starting = True
        self._core.spawn(self._begin(waiter, taken))

    async def _begin(self, waiter: Waiter, taken: Taken | None) -> None:
        """Do what a waiter asked for; where it is refused for now, it waits (again)."""
        core, record = self._core, waiter.record
        try:
            if record.create is not None:
                entry, lease = await self._create(waiter, taken), None
            else:
                entry, lease = await self._acquire(waiter, taken)
        except (NoCapacity, Held) as error:
            waiter.starting = False
            if waiter.gone:
                return
            waiter.waited = True
            waiter.target = str(error.data["partition"]) if isinstance(error, Held) else ""
            self.line.add(waiter)
            if not waiter.target:
                self.line.look()
            return
        except PodwrightError as error:
            waiter.starting = False
            if core.journal.full is None:
                waiter.fail(error)
            elif not waiter.gone:  # it is still written down, and goes on once there is room
                self.line.add(waiter)
            return
        waiter.starting = False
        waiter.partition = entry.name
        waiter.lease = lease.record.id if lease else ""
        core.journal.later(Delete(WAITER, waiter.id))
        if waiter.waited:
            core.tell("Start", entry.name, record.name, f"{waiter.id} had waited for it")
        if waiter.gone:
            await self._give_back(waiter)
        else:
            waiter.changed.set()

    async def _create(self, waiter: Waiter, taken: Taken | None) -> Entry:
        request = waiter.record.create
        assert request is not None
        entry = await partitions.begin_create(
            self._core,
            waiter.caller,
            waiter.checked,
            taken=taken,
            duration=request.duration,
        )
        await partitions.finish_create(self._core, entry)
        waiter.created = True
        return entry

    async def _acquire(self, waiter: Waiter, taken: Taken | None) -> tuple[Entry, HeldLease]:
        request = waiter.record.acquire
        assert request is not None
        entry, _, lease, waiter.created = await acquiring.acquire(
            self._core, waiter.caller, request, taken
        )
        return entry, lease

    # -- leaving -----------------------------------------------------------------------------

    def _find(self, caller: Caller, name: str) -> Waiter:
        waiter = self._waiters.get(name)
        if waiter is None:
            raise self._nobody(name)
        check_change(caller, waiter.record.name, f"wait as {name}")
        return waiter

    def _nobody(self, name: str) -> NotFound:
        return NotFound(
            f"nobody waits as {name[:80]}",
            asked="wait",
            would_work="join again: who does not ask for "
            f"{GONE_AFTER:g} s has left the waiting line",
        )

    def _forget(self, waiter: Waiter) -> None:
        if self._waiters.pop(waiter.id, None) is not None:
            self._core.journal.later(Delete(WAITER, waiter.id))

    async def _quietly_leave(self, waiter: Waiter) -> None:
        if waiter.id in self._waiters:
            with suppress(PodwrightError):
                await self.leave(waiter.caller, waiter.id)

    async def _give_back(self, waiter: Waiter) -> None:
        core = self._core
        with suppress(PodwrightError):
            if waiter.lease:
                if (lease := core.leases.get(waiter.lease)) is not None:
                    claim = LeaseRequest(id=waiter.lease, epoch=lease.record.epoch)
                    with suppress(Fenced):
                        await ends.release(core, waiter.caller, claim)
                return
            entry = await partitions.begin_remove(
                core, waiter.caller, waiter.partition, force=False
            )
            await partitions.finish_remove(core, waiter.caller, entry, force=True)


def _described(core: Core, waiter: Waiter) -> str:
    verb = "create " if waiter.record.create is not None else "acquire "
    return verb + described(waiter.spec, core.inventory.noun)


def _info(record: WaiterRecord, action: str, state: str) -> WaiterInfo:
    return WaiterInfo(
        id=record.id,
        owner=record.name,
        state=state,
        asked=action,
        priority=record.priority,
        since=record.since,
    )
