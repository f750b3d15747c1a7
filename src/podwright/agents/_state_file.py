"""The durable state of an agent: the partition of each device, and its fence.

The state is one small private file. The epoch of a call is written before the call touches a
device, and its outcome is written before the reply is sent. So a restarted agent refuses whatever
the killed one refused.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import msgspec

from podwright.agents._device_record import DeviceRecord
from podwright.agents._driver_interface import (
    EPOCH_LIMIT,
    EPOCH_STEP,
    Driver,
    MachineReport,
    OwnedDriver,
)
from podwright.errors import AlreadyExists, Internal, InvalidRequest
from podwright.fabric import Machine
from podwright.ground.durable_files import write_whole


def check_epoch(epoch: int, highest_epoch: int, operation: str) -> None:
    """Raise wire.InvalidRequest for an epoch that no server can have reached.

    If an agent obeyed such an epoch once, it would refuse every server from then on. highest_epoch:
    the highest epoch so far; 0: none yet.
    """
    limit = min(EPOCH_LIMIT, highest_epoch + EPOCH_STEP) if highest_epoch else EPOCH_LIMIT
    if not 0 <= epoch < limit:
        raise InvalidRequest(
            f"epoch {epoch} is none that a server can have come to",
            operation=operation,
            would_work=f"choose one below {limit}",
        )


class _SavedState(msgspec.Struct, frozen=True):
    """The content of the file. devices: the records of this kind of machine, by device index."""

    machine: str
    devices: tuple[Any, ...] = ()


class SavableDriver(Driver, Protocol):
    """A machine that keeps one record for each device in `devices`."""

    machine: Machine

    @property
    def devices(self) -> Sequence[DeviceRecord]:
        """The records, all of one class. The file is read as this class, and the records change in
        place.
        """
        ...

    def raise_fence(self, kind: str, epoch: int, devices: Sequence[int]) -> None:
        """Refuse older epochs from now on. Raises wire.Fenced when this epoch is older itself."""
        ...


class SavedMachine:
    """A machine whose device records outlive its process, in a file. Implements Driver.

    Raises wire.InvalidRequest for a file of another machine or of another format, and
    wire.AlreadyExists when another agent serves from the file.
    """

    def __init__(self, machine: SavableDriver, path: Path) -> None:
        self._machine = machine
        self._path = path
        self._lock = _lock(path)
        try:
            saved_state = msgspec.json.decode(path.read_bytes(), type=_SavedState)
            record_pairs = [
                (device_record, msgspec.convert(saved_record, type(device_record)))
                for device_record, saved_record in zip(
                    machine.devices, saved_state.devices, strict=False
                )
            ]
        except FileNotFoundError:
            saved_state, record_pairs = _SavedState(machine.machine.name), []
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidRequest(
                f"cannot read the agent's state {path}: {error}",
                would_work="move it away if the machine may be reset; its devices then count "
                "as unknown to it",
            ) from None
        if saved_state.machine != machine.machine.name:
            raise InvalidRequest(
                f"{path} is the state of machine {saved_state.machine}, not {machine.machine.name}",
                would_work="give another --state",
            )
        for device_record, saved_record in record_pairs:
            for field in fields(saved_record):
                setattr(device_record, field.name, getattr(saved_record, field.name))

    def let_go(self) -> None:
        """Release the file, so that another agent can serve from it."""
        os.close(self._lock)

    async def describe(self) -> MachineReport:
        """See `Driver.describe`."""
        return await self._machine.describe()

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.configure`."""
        await self.configure_for("", partition, epoch, devices)

    async def configure_for(
        self, owner: str, partition: str, epoch: int, devices: Sequence[int]
    ) -> None:
        """See `OwnedDriver.configure_for`."""
        self._fence_and_save("configure", epoch, devices)
        if isinstance(self._machine, OwnedDriver):
            await self._machine.configure_for(owner, partition, epoch, devices)
        else:
            await self._machine.configure(partition, epoch, devices)
        self._save_state()

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.reset`."""
        self._fence_and_save("reset", epoch, devices)
        await self._machine.reset(epoch, devices)
        self._save_state()

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """See `Driver.fence`."""
        self._fence_and_save("fence", epoch, devices)
        await self._machine.fence(epoch, devices, run)
        self._save_state()

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.release`."""
        self._fence_and_save("release", epoch, devices)
        await self._machine.release(epoch, devices)
        self._save_state()

    def _fence_and_save(self, call_kind: str, epoch: int, devices: Sequence[int]) -> None:
        count = len(self._machine.devices)
        if indices := [index for index in devices if not 0 <= index < count]:
            raise InvalidRequest(
                f"machine {self._machine.machine.name} has no device {indices[0]}",
                operation=call_kind,
                would_work=f"0 to {count - 1}",
            )
        highest_epoch = max((device.seen for device in self._machine.devices), default=0)
        check_epoch(epoch, highest_epoch, call_kind)
        self._machine.raise_fence(call_kind, epoch, devices)
        self._save_state()

    def _save_state(self) -> None:
        name = self._machine.machine.name
        state_json = msgspec.json.encode(_SavedState(name, tuple(self._machine.devices)))
        try:
            write_whole(self._path, state_json)
        except OSError as error:
            raise Internal(
                f"machine {name} cannot write its state {self._path}: {error.strerror}"
            ) from None


def _lock(state_path: Path) -> int:
    """Lock a state file. The lock ends with the process."""
    descriptor = os.open(
        state_path.with_name(state_path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AlreadyExists(
            f"another agent keeps its state in {state_path}",
            would_work="end it, or another --state",
        ) from None
    return descriptor
