"""The order of a call on every fabric: read, refuse, write down, change, read back.

The fault kit (`podwright.testing`) holds every driver to these rules:

- Calls on the same devices or the same partition run one after the other, in the order in which
  they came. Others run side by side where the manager allows it (`_turns`).
- A caller that gives up does not end its call, because the request is on its way and can still
  take effect. So a turn lasts until its call has really ended. Otherwise a later call would read
  the fabric before the earlier request changed it, and would write back devices that had left
  meanwhile.
- Nothing is sent before the fabric has ended what earlier calls began. The outcome of a request
  whose reply is missing is read from the fabric. No request is repeated because its reply is
  missing.
- A partition takes only devices that are free or its own.
- The intent is durable before the first request. After a kill, the next server carries out the open
  intents before its own first change.
- A call succeeds only after a fresh reading shows exactly the wanted devices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from typing import Any, TypeVar

from podwright.agents._fabric_driver_interface import (
    FabricDevice,
    FabricJournal,
    FabricParts,
    FabricReading,
    named_devices,
)
from podwright.agents.fabric._hardware_interface import FabricHardware, FabricTiming
from podwright.agents.fabric._intent_journal import FabricIntent, Intents
from podwright.agents.fabric._turns import EVERYTHING, FabricTurn, FabricTurns
from podwright.errors import Fenced, Internal, NotFound, PodwrightError, Unavailable, WrongState

_T = TypeVar("_T")
_log = logging.getLogger("podwright.fabric")


class OrderedFabric:
    """A FabricDriver over one kind of hardware. journal: keeps its intents and epochs."""

    def __init__(
        self,
        hardware: FabricHardware,
        journal: FabricJournal,
        timing: FabricTiming | None = None,
    ) -> None:
        self.kind = hardware.kind
        #: See `PoolDriver`; empty for a fabric whose devices have a home.
        self.hosts: tuple[str, ...] = tuple(getattr(hardware, "hosts", ()))
        self._hardware = hardware
        self._timing = timing or FabricTiming()
        self._journal = journal
        self._intents: Intents | None = None
        self._turns = FabricTurns()
        self._side_by_side = bool(getattr(hardware, "side_by_side", False))
        self._recovered = False

    async def join(self, partition: str, epoch: int, parts: FabricParts) -> None:
        """See `FabricDriver.join`."""
        await self._change_in_turn(_call_intent(partition, epoch, parts))

    async def leave(self, epoch: int, parts: FabricParts) -> None:
        """See `FabricDriver.leave`."""
        await self._change_in_turn(_call_intent("", epoch, parts))

    async def read(self, machines: Collection[str] = ()) -> FabricReading:
        """See `FabricDriver.read`."""
        return await self._call(self._hardware.read, (), machines)

    async def recover(self) -> None:
        """Carry out the calls that a killed server had begun.

        Raises PodwrightError for the first intent that cannot be carried out, after trying the
        others too.
        """
        await self._run_in_turn(
            EVERYTHING, lambda _: self._carry_out_open_intents(frozenset(), strict=True)
        )
        self._recovered = True

    # -- the order of calls --------------------------------------------------------------------

    async def _change_in_turn(self, intent: FabricIntent) -> None:
        keys: frozenset[Hashable] | None = EVERYTHING
        # The first call also carries out what a killed server had begun, on whichever devices.
        if self._side_by_side and self._recovered:
            keys = frozenset([*intent.devices, intent.partition]) - {""}
        await self._run_in_turn(keys, lambda turn: self._change(intent, turn))

    async def _run_in_turn(
        self,
        keys: frozenset[Hashable] | None,
        work: Callable[[FabricTurn], Coroutine[Any, Any, _T]],
    ) -> _T:
        """Do the work after the earlier calls on these keys, whether or not their callers wait.

        The turn ends when the work ends, and not when its caller is cancelled.
        """
        turn = await self._turns.begin(keys)
        task = asyncio.ensure_future(work(turn))
        task.add_done_callback(lambda done: self._end_call(turn, done))
        return await asyncio.shield(task)

    def _end_call(self, turn: FabricTurn, task: asyncio.Future[Any]) -> None:
        self._turns.end(turn)
        if not task.cancelled():
            task.exception()  # its caller may be gone, so the error is retrieved here

    async def _call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.to_thread(function, *arguments)

    def _loaded_intents(self) -> Intents:
        if self._intents is None:
            self._intents = Intents(self._journal)
        return self._intents

    async def _change(self, intent: FabricIntent, turn: FabricTurn) -> None:
        intents = self._loaded_intents()
        is_outdated = intent.epoch < (newest_epoch := intents.newest(intent.devices))
        if not is_outdated and not self._recovered:
            await self._carry_out_open_intents(intent.devices, strict=False)
            self._recovered = True
        reading = await self._call(self._settled_reading, intent)
        if records := _records_changed(intent, reading):
            await self._turns.widen(turn, records)
            reading = await self._call(self._settled_reading, intent)
        if _is_complete(intent, reading):
            if not is_outdated and intents.overlap(intent.devices):
                # An earlier call on these devices is open, and must not be carried out after the
                # next kill. So its end has to be durable, although this call changes nothing.
                intents.end(await intents.begin(intent))
            elif not is_outdated:
                intents.raise_epochs(intent)
            return
        if is_outdated:
            raise Fenced(
                f"{named_devices(intent.devices)} have seen epoch {newest_epoch}, newer than "
                f"{intent.epoch}",
                operation=_intent_in_words(intent),
            )
        _check_intent(intent, reading)
        intent_number = await intents.begin(intent)
        await self._call(self._carry_out_intent, intent, reading)
        intents.end(intent_number)

    async def _carry_out_open_intents(
        self, excluded_devices: frozenset[FabricDevice], *, strict: bool
    ) -> None:
        """Finish the open intents, except for those on the devices that a new call settles."""
        intents = self._loaded_intents()
        first_error: PodwrightError | None = None
        for intent_number, intent in sorted(intents.open.items()):
            if not intent.devices.isdisjoint(excluded_devices):
                continue
            try:
                reading = await self._call(self._settled_reading, intent)
                if not _is_complete(intent, reading):
                    _check_intent(intent, reading)
                    await self._call(self._carry_out_intent, intent, reading)
            except PodwrightError as error:
                _log.warning("a call that a kill interrupted is still open: %s", error.message)
                first_error = first_error or error
            else:
                intents.end(intent_number)
        if strict and first_error is not None:
            raise first_error

    # -- in a thread ---------------------------------------------------------------------------

    def _settled_reading(self, intent: FabricIntent) -> FabricReading:
        self._hardware.settle(intent.partition, intent.devices)
        return self._hardware.read(intent.devices)

    def _carry_out_intent(self, intent: FabricIntent, reading: FabricReading) -> None:
        """Send the requests that are missing, then read until the fabric shows the wanted
        devices.
        """
        if intent.partition:
            present_devices = reading.partitions.get(intent.partition, frozenset())
            missing_devices = frozenset(
                device
                for device in intent.devices
                if device not in present_devices or device in reading.disputed
            )
            if missing_devices:
                self._hardware.add(intent.partition, missing_devices)
            expected_members = {intent.partition: present_devices | intent.devices}
        else:
            expected_members = {}
            for partition_name, members in reading.partitions.items():
                leaving_devices = members & intent.devices
                disputed_devices = {
                    device
                    for device in intent.devices
                    if reading.disputed.get(device) == partition_name
                }
                if leaving_devices or disputed_devices:
                    self._hardware.remove(partition_name, leaving_devices | disputed_devices)
                    expected_members[partition_name] = members - leaving_devices
        self._confirm_outcome(intent, expected_members)

    def _confirm_outcome(
        self, intent: FabricIntent, expected_members: Mapping[str, frozenset[FabricDevice]]
    ) -> None:
        problem = ""
        for _ in self._timing.pauses():
            reading = self._hardware.read(intent.devices)
            self._give_back_contested(intent, reading)
            problem = next(
                (
                    f"partition {name} has "
                    f"{named_devices(present_devices) or 'no devices'} instead of "
                    f"{named_devices(members) or 'none'}"
                    for name, members in expected_members.items()
                    if (present_devices := reading.partitions.get(name, frozenset())) != members
                ),
                "",
            ) or ("" if _is_complete(intent, reading) else _outcome_problem(intent, reading))
            if not problem:
                return
        raise Internal(
            f"the fabric says that it is done, but {problem}",
            operation=_intent_in_words(intent),
            would_work="look at the fabric's own view, and repeat the call",
        )

    def _give_back_contested(self, intent: FabricIntent, reading: FabricReading) -> None:
        """Give back devices that another party took between the reading and the change.

        This happens only with a fabric that refuses nothing. The other party's partition stays as
        it is.
        """
        own_devices = reading.partitions.get(intent.partition, frozenset()) & intent.devices
        contested_devices = frozenset(device for device in own_devices if device in reading.foreign)
        if contested_devices:
            self._hardware.remove(intent.partition, contested_devices)
            foreign_partitions = sorted({reading.foreign[device] for device in contested_devices})
            raise WrongState(
                f"{named_devices(contested_devices)} was taken meanwhile by "
                f"{', '.join(foreign_partitions)}",
                operation=_intent_in_words(intent),
                would_work="whoever made that partition takes the devices out of it",
            )


def _call_intent(partition: str, epoch: int, parts: FabricParts) -> FabricIntent:
    return FabricIntent(
        partition, epoch, {machine: sorted(indices) for machine, indices in parts.items()}
    )


def _records_changed(intent: FabricIntent, reading: FabricReading) -> frozenset[str]:
    """Return the partitions and shared records that this call may change, beside its own."""
    records = {
        name
        for name, members in reading.partitions.items()
        if not intent.devices.isdisjoint(members)
    }
    records |= {name for device, name in reading.disputed.items() if device in intent.devices}
    if intent.partition:
        records |= {name for device, name in reading.shared.items() if device in intent.devices}
    return frozenset(records - {intent.partition})


def _intent_in_words(intent: FabricIntent) -> str:
    names = named_devices(intent.devices)
    return f"join partition {intent.partition}: {names}" if intent.partition else f"leave: {names}"


def _is_complete(intent: FabricIntent, reading: FabricReading) -> bool:
    """Return whether the fabric already shows the outcome of the call, beyond doubt."""
    if not intent.partition:
        return all(
            intent.devices.isdisjoint(devices) for devices in reading.partitions.values()
        ) and all(
            reading.knows(device) and device not in reading.disputed for device in intent.devices
        )
    members = reading.partitions.get(intent.partition, frozenset())
    return intent.devices <= members and not _outcome_problem(intent, reading)


def _outcome_problem(intent: FabricIntent, reading: FabricReading) -> str:
    """Return why the fabric's own records do not show the call's outcome. Empty: they show it."""
    if not intent.partition:
        return "" if _is_complete(intent, reading) else "the devices are still in a partition"
    if problem := reading.doubts.get(intent.partition):
        return problem
    return next(
        (reading.ill[device] for device in sorted(intent.devices) if device in reading.ill), ""
    )


def _check_intent(intent: FabricIntent, reading: FabricReading) -> None:
    """Raise the error that forbids the call, if there is one. Nothing has been changed yet."""
    unknown_devices = {device for device in intent.devices if not reading.knows(device)}
    if unknown_devices:
        raise NotFound(
            f"the fabric lists no device that is {named_devices(unknown_devices)}",
            operation=_intent_in_words(intent),
            would_work="correct the inventory of the fabric, or wait until the machine is back",
        )
    if not intent.partition:
        return
    for partition_name, members in reading.partitions.items():
        if partition_name != intent.partition and (conflicting_devices := members & intent.devices):
            raise WrongState(
                f"{named_devices(conflicting_devices)} is in partition {partition_name}",
                operation=_intent_in_words(intent),
                would_work=f"release partition {partition_name} first",
            )
    foreign_devices = {device for device in intent.devices if device in reading.foreign}
    if foreign_devices:
        foreign_partitions = sorted({reading.foreign[device] for device in foreign_devices})
        raise WrongState(
            f"{named_devices(foreign_devices)} is in {', '.join(foreign_partitions)}, which is not "
            "Podwright's",
            operation=_intent_in_words(intent),
            would_work="whoever made that partition takes the devices out of it",
        )
    if problem := reading.unmatched.get(intent.partition):
        raise WrongState(
            problem, operation=_intent_in_words(intent), would_work="correct the fabric's inventory"
        )
    present_devices = reading.partitions.get(intent.partition, frozenset())
    for device in sorted(intent.devices - present_devices):
        if problem := reading.ill.get(device):
            raise Unavailable(
                f"{device} cannot be joined: {problem}", operation=_intent_in_words(intent)
            )
