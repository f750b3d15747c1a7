"""Calls to machines: many at once, each within its time, and their failures as data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, cast

from podwright.agents import Driver, FabricDriver, MachineReport, OwnedDriver
from podwright.errors import PodwrightError, Unavailable, WrongState

DevicesByMachine = Mapping[str, Sequence[int]]  #: machine name -> indices of devices in it


class MachineFault(NamedTuple):
    """A machine whose call failed. silent: it did not answer at all."""

    machine: str
    reason: str
    silent: bool


class CutoffMeans(NamedTuple):
    """What keeps an old epoch from a machine's devices (agents.MachineReport)."""

    by: str
    uid: int


class MachineCalls:
    """The drivers of all machines.

    timeout: seconds for a call. on_silence: told the name of each machine that did not answer.
    """

    def __init__(
        self, drivers: Mapping[str, Driver], *, timeout: float, on_silence: Callable[[str], None]
    ) -> None:
        self._drivers = dict(drivers)
        self._timeout = timeout
        #: What joins devices of several machines, where something does.
        self.fabric: FabricDriver | None = None
        #: Seconds in which a machine must say what it has.
        self.patience = timeout
        self._on_silence = on_silence
        self._under_way: dict[str, dict[asyncio.Timeout, str]] = {}
        #: What each machine last said that it can keep from its devices, and under which account.
        self.cuts: dict[str, CutoffMeans] = {}
        #: By machine: why its agent and this server do not understand each other.
        self.foreign: dict[str, str] = {}
        #: Called with each report; raises PodwrightError for a machine that must not serve.
        self.accept: Callable[[str, MachineReport], None] = lambda *_: None

    def add(self, machine: str, driver: Driver) -> None:
        """Add a machine, or replace its driver."""
        self._drivers[machine] = driver

    def remove(self, machine: str) -> Driver | None:
        """Remove a machine. Returns its driver."""
        return self._drivers.pop(machine, None)

    def may_change(self, machine: str) -> bool:
        """Whether a machine has real devices, whose health can change by itself."""
        return hasattr(self._drivers.get(machine), "configure_for")

    def abort_calls(self, machine: str, abort_reason: str) -> None:
        """Abort the calls to a machine: they end as if they had timed out."""
        for scope in (timeout_scopes := self._under_way.get(machine, {})):
            timeout_scopes[scope] = abort_reason
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())

    @property
    def pool_hosts(self) -> tuple[str, ...]:
        """The hosts to which the fabric can attach devices of a pool."""
        return tuple(getattr(self.fabric, "hosts", ()))

    async def configure(
        self,
        partition: str,
        epoch: int,
        devices_by_machine: DevicesByMachine,
        *,
        owner: str = "",
        joins: Mapping[str, DevicesByMachine] | None = None,
    ) -> list[MachineFault]:
        """Join devices into a partition of its owner. Returns the machines that failed.

        joins: the same devices by the fabric's names of the partition (`Entry.joins`); None: the
        fabric has it under its own name.
        """

        async def join(driver: Driver, device_indices: Sequence[int]) -> None:
            # An attribute is asked for, since this is on the way of every creation.
            if hasattr(driver, "configure_for"):
                await cast(OwnedDriver, driver).configure_for(
                    owner, partition, epoch, device_indices
                )
            else:
                await driver.configure(partition, epoch, device_indices)

        if self.fabric is not None:
            for name, devices in (joins or {partition: devices_by_machine}).items():
                fabric_call = self.fabric.join(name, epoch, devices)
                if faults := await self._fabric_call(fabric_call, devices_by_machine):
                    return faults
        return await self._call_each_machine(devices_by_machine, join)

    async def reset(self, epoch: int, devices_by_machine: DevicesByMachine) -> list[MachineFault]:
        """Reset devices. Returns the machines that failed."""
        return await self._call_each_machine(
            devices_by_machine, lambda driver, device_indices: driver.reset(epoch, device_indices)
        )

    async def fence(
        self, epoch: int, devices_by_machine: DevicesByMachine, *, run: str = ""
    ) -> list[MachineFault]:
        """Cut older epochs off from devices, and reset them. Returns the machines that did not.

        run: what marks the processes of the launch whose they were.
        """
        return await self._call_each_machine(
            devices_by_machine,
            lambda driver, device_indices: driver.fence(epoch, device_indices, run),
        )

    async def release(self, epoch: int, devices_by_machine: DevicesByMachine) -> list[MachineFault]:
        """Reset devices and take them out of their partition. Returns the machines that did
        not."""
        if self.fabric is not None and (
            faults := await self._fabric_call(
                self.fabric.leave(epoch, devices_by_machine), devices_by_machine
            )
        ):
            return faults
        return await self._call_each_machine(
            devices_by_machine, lambda driver, device_indices: driver.release(epoch, device_indices)
        )

    async def _fabric_call(
        self, fabric_call: Awaitable[None], devices_by_machine: DevicesByMachine
    ) -> list[MachineFault]:
        """One call for all machines: when it fails, none of them has done its part.

        It comes before theirs: what a machine says of itself after a crash tells whether a step
        was finished, so nothing may be left to do once it has said so.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await fabric_call
        except TimeoutError:
            reason = f"the fabric between machines does not answer within {self._timeout:g} s"
        except PodwrightError as error:
            reason = error.message.rstrip(".")
        except Exception as error:  # a driver's own fault must not take the controller down
            reason = f"the fabric between machines failed: {error!r}"
        else:
            return []
        return [MachineFault(machine, reason, False) for machine in devices_by_machine]

    async def describe(self, machine: str) -> MachineReport:
        """What a machine has. Raises wire.Unavailable when it does not answer in time."""
        driver = self._drivers.get(machine)
        if driver is None:
            raise Unavailable(f"machine {machine} has no driver")
        try:
            async with asyncio.timeout(self.patience):
                report = await driver.describe()
        except TimeoutError:
            raise Unavailable(self._timeout_text(machine, self.patience)) from None
        except WrongState as error:
            if error.data.get("incompatible"):
                self.foreign[machine] = error.problem
            raise
        self.foreign.pop(machine, None)
        self.cuts[machine] = CutoffMeans(report.cuts_off, report.uid)
        self.accept(machine, report)
        return report

    async def _call_each_machine(
        self,
        devices_by_machine: DevicesByMachine,
        machine_call: Callable[[Driver, Sequence[int]], Awaitable[None]],
    ) -> list[MachineFault]:
        if len(devices_by_machine) == 1:  # the common case needs no task
            for machine, devices in devices_by_machine.items():
                fault = await self._call_machine(machine, devices, machine_call)
                return [fault] if fault else []
        results = await asyncio.gather(
            *(
                self._call_machine(name, indices, machine_call)
                for name, indices in devices_by_machine.items()
            )
        )
        return [fault for fault in results if fault]

    async def _call_machine(
        self,
        machine: str,
        device_indices: Sequence[int],
        machine_call: Callable[[Driver, Sequence[int]], Awaitable[None]],
    ) -> MachineFault | None:
        driver = self._drivers.get(machine)
        if driver is None:
            return MachineFault(machine, f"machine {machine} has no driver", True)
        timeout_scopes = self._under_way.setdefault(machine, {})
        timeout_scope = asyncio.timeout(self._timeout)
        timeout_scopes[timeout_scope] = ""
        try:
            async with timeout_scope:
                await machine_call(driver, device_indices)
        except TimeoutError:
            fault = MachineFault(
                machine,
                timeout_scopes[timeout_scope] or self._timeout_text(machine, self._timeout),
                True,
            )
        except PodwrightError as error:
            fault = MachineFault(machine, error.message.rstrip("."), isinstance(error, Unavailable))
        except Exception as error:  # a driver's own fault must not take the controller down
            fault = MachineFault(machine, f"machine {machine} failed: {error!r}", False)
        else:
            return None
        finally:
            del timeout_scopes[timeout_scope]
        if fault.silent:
            self._on_silence(machine)
        return fault

    def _timeout_text(self, machine: str, timeout_seconds: float) -> str:
        return f"machine {machine} does not answer within {timeout_seconds:g} s"
