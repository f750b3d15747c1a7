"""A machine whose devices exist only as data, so that everything above it can be run and broken.

Its state outlives a controller: tests, and a restarted server in one process, start new controllers
over the same machines, as a real pod outlives its server.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from podwright.agents._device_record import DeviceRecord
from podwright.agents._driver_interface import MachineReport
from podwright.errors import Fenced, Internal, Unavailable
from podwright.fabric import Attachment, Family, Machine
from podwright.wire.agent import DeviceState

Sleep = Callable[[float], Awaitable[None]]


class Fault(enum.Enum):
    """The ways in which a call can be made to fail."""

    FAIL = "fail"  #: the machine answers that it failed, and did nothing
    SILENT = "silent"  #: the machine cannot be reached
    HANG = "hang"  #: no answer, ever; nothing is done
    LOST_REPLY = "lost-reply"  #: it is done, but the answer never arrives


class Call(NamedTuple):
    """One call as the machine received it. kind: describe, configure, reset, fence or release."""

    kind: str
    partition: str
    epoch: int
    devices: tuple[int, ...]


@dataclass(slots=True)
class SimulatedDevice(DeviceRecord):
    """A device that exists only as data.

    used_by: the partition whose programs have touched it since its last reset, or empty.
    """

    used_by: str = ""
    healthy: bool = True


@dataclass(slots=True)
class _FaultPlan:
    """The faults and delays of the calls to come."""

    faults: dict[str, list[Fault]] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)
    down: bool = False


class SimulatedMachine:
    """A simulated machine behind the interface of a driver.

    `host` and the ports are the addresses that its devices report; nothing listens there. `sleep`
    waits for delays, so that tests can use a virtual clock. `links` is what its ports see, or None
    for a machine that cannot tell. `serial` is the start of its chip ids.
    """

    def __init__(
        self,
        machine: Machine,
        family: Family,
        *,
        ip: str = "",
        server_port: int = 31000,
        rdma_port: int = 32000,
        sleep: Sleep = asyncio.sleep,
        max_kept_calls: int = 0,
        links: Mapping[str, str] | None = None,
        serial: str = "",
    ) -> None:
        self.machine = machine
        self.family = family
        self.devices = [SimulatedDevice() for _ in range(family.devices_per_machine)]
        #: The last `max_kept_calls` calls, oldest first; none are kept by default.
        self.calls: list[Call] = []
        #: Violations of isolation: a device joined a partition with another partition's data on it.
        self.violations: list[str] = []
        #: The `MachineReport.cuts_off` and `uid` of the machine; its devices always refuse old
        #: epochs.
        self.cuts_off, self.uid = "devices", -1
        self.links = links
        self.serial = serial or f"SIM-{machine.name}"
        self._ip = ip or machine.host
        self._server_port = server_port
        self._rdma_port = rdma_port
        self._sleep = sleep
        self._max_kept_calls = max_kept_calls
        self._plan = _FaultPlan()

    # -- what tests set ----------------------------------------------------------------------

    def delay(self, call_kind: str, delay_seconds: float) -> None:
        """Let every call of this kind take that many seconds."""
        self._plan.delays[call_kind] = delay_seconds

    def fail_next(self, call_kind: str, call_count: int = 1, fault: Fault = Fault.FAIL) -> None:
        """Let the next calls of this kind fail in this way."""
        self._plan.faults.setdefault(call_kind, []).extend([fault] * call_count)

    def set_down(self, down: bool) -> None:
        """Let the machine answer no call, until this is revoked. Devices keep their state."""
        self._plan.down = down

    def set_healthy(self, device_index: int, healthy: bool) -> None:
        """Make a device healthy or not. An unhealthy device refuses to be configured or reset."""
        self.devices[device_index].healthy = healthy

    def heal(self) -> None:
        """Discard all faults to come."""
        self._plan = _FaultPlan(delays=self._plan.delays)
        for device in self.devices:
            device.healthy = True

    def power_cycle(self) -> None:
        """Come back as a machine that was switched off, without configuration, data or fence."""
        self.devices = [SimulatedDevice() for _ in self.devices]

    def use(self, epoch: int, devices: Sequence[int]) -> None:
        """Let a lease holder's program touch devices. Raises wire.Fenced for an old epoch."""
        for index in devices:
            device = self.devices[index]
            if epoch < device.seen:
                raise self._fenced_error("use", index, epoch)
            device.used_by = device.partition

    def raise_fence(self, kind: str, epoch: int, devices: Sequence[int]) -> None:
        """Refuse older epochs from now on. Raises wire.Fenced when a device has seen
        a newer epoch than this one.
        """
        for index in devices:
            if epoch < self.devices[index].seen:
                raise self._fenced_error(kind, index, epoch)
        for index in devices:
            self.devices[index].seen = epoch

    # -- the interface of a driver ------------------------------------------------------------

    async def describe(self) -> MachineReport:
        """See `Driver.describe`."""
        lost_reply_error = await self._begin_call(Call("describe", "", 0, ()))
        if lost_reply_error:
            raise lost_reply_error
        return MachineReport(
            devices=tuple(self._report(index) for index in range(len(self.devices))),
            configured={
                index: (device.partition, device.epoch)
                for index, device in enumerate(self.devices)
                if device.partition
            },
            software="simulated",
            links=self.links,
            name=self.machine.name,
            family=self.family.name,
            fence=max((device.seen for device in self.devices), default=0),
            cuts_off=self.cuts_off,
            uid=self.uid,
        )

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.configure`."""
        error = await self._begin_call(Call("configure", partition, epoch, tuple(devices)))
        for device in self._fence_devices("configure", epoch, devices):
            if device.used_by not in ("", partition) or device.partition not in ("", partition):
                self.violations.append(
                    f"{self.machine.name}: {device.partition or device.used_by} -> {partition}"
                )
            if device.partition != partition:
                device.used_by = ""
            device.partition = partition
            device.epoch = epoch
        if error:
            raise error

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.reset`."""
        error = await self._begin_call(Call("reset", "", epoch, tuple(devices)))
        for device in self._fence_devices("reset", epoch, devices):
            device.used_by = ""
            device.epoch = epoch
        if error:
            raise error

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """See `Driver.fence`. The devices refuse each program that comes with an older epoch."""
        error = await self._begin_call(Call("fence", "", epoch, tuple(devices)))
        for device in self._fence_devices("fence", epoch, devices):
            device.used_by = ""
            device.epoch = epoch
        if error:
            raise error

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.release`."""
        error = await self._begin_call(Call("release", "", epoch, tuple(devices)))
        for device in self._fence_devices("release", epoch, devices):
            device.used_by = ""
            device.partition = ""
            device.epoch = epoch
        if error:
            raise error

    # -- inside ------------------------------------------------------------------------------

    async def _begin_call(self, call: Call) -> Unavailable | None:
        """Log the call, then delay or fail it as planned. Returns an error to raise after the
        work.
        """
        if self._max_kept_calls:
            self.calls.append(call)
            del self.calls[: -self._max_kept_calls]
        fault_plan = self._plan
        if (delay_seconds := fault_plan.delays.get(call.kind, 0.0)) > 0:
            await self._sleep(delay_seconds)
        if fault_plan.down:
            raise self._silence_error()
        if not (planned_faults := fault_plan.faults.get(call.kind)):
            return None
        fault = planned_faults.pop(0)
        if fault is Fault.HANG:
            await asyncio.Event().wait()
        if fault is Fault.FAIL:
            raise Internal(f"machine {self.machine.name} failed to {call.kind} its devices")
        if fault is Fault.SILENT:
            raise self._silence_error()
        return self._silence_error()

    def _silence_error(self) -> Unavailable:
        return Unavailable(f"machine {self.machine.name} does not answer")

    def _fence_devices(
        self, call_kind: str, epoch: int, devices: Sequence[int]
    ) -> list[SimulatedDevice]:
        fenced_devices = []
        for device_index in devices:
            device = self.devices[device_index]
            if epoch < device.seen:
                raise self._fenced_error(call_kind, device_index, epoch)
            if not device.healthy and call_kind not in ("release", "fence"):
                raise Internal(
                    f"{self.family.device_noun} {device_index} of machine {self.machine.name} is "
                    "unhealthy"
                )
            fenced_devices.append(device)
        for device in fenced_devices:
            device.seen = epoch
        return fenced_devices

    def _fenced_error(self, call_kind: str, device_index: int, epoch: int) -> Fenced:
        return Fenced(
            f"{self.family.device_noun} {device_index} of machine {self.machine.name} has seen "
            f"epoch {self.devices[device_index].seen}, newer than {epoch}",
            operation=call_kind,
        )

    def _report(self, device_index: int) -> DeviceState:
        return DeviceState(
            index=device_index,
            ip=self._ip,
            server_port=self._server_port + device_index,
            rdma_port=self._rdma_port + device_index,
            arch_id=2,
            chip_id=f"{self.serial}-{device_index}",
            healthy=self.devices[device_index].healthy,
            attributes=self._device_attributes(device_index),
        )

    def _device_attributes(self, device_index: int) -> dict[str, str]:
        if self.family.attachment is not Attachment.FABRIC:
            return {"name": "SIMULATED", "driver version": "simulated"}
        return {
            # The keys are those that `vipu list ipu-attrs` is documented to show.
            "board ipu index": str(device_index),
            "board serial number": self.serial,
            "board type": "SIMULATED",
            "clock": "1330MHz",
            "driver version": "simulated",
            "firmware major version": "0",
            "firmware minor version": "0",
            "firmware patch version": "0",
            "firmware version": "0.0.0",
        }
