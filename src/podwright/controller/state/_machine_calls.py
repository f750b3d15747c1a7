"""Calls to machines: many at once, each within its time, and their failures as data."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, cast

from podwright.agents import Driver, FabricDriver, MachineReport, OwnedDriver
from podwright.errors import PodwrightError, Unavailable, WrongState

Parts = Mapping[str, Sequence[int]]  #: machine name -> indices of devices in it


class MachineFault(NamedTuple):
    """A machine whose call failed. silent: it did not answer at all."""

    machine: str
    reason: str
    silent: bool


class Cut(NamedTuple):
    """What keeps an old epoch from a machine's devices (agents.MachineReport)."""

    by: str
    uid: int


class MachineCalls:
    """The drivers of all machines.

    timeout: seconds for a call. silence: told the name of each machine that did not answer.
    """

    def __init__(
        self, drivers: Mapping[str, Driver], *, timeout: float, silence: Callable[[str], None]
    ) -> None:
        self._drivers = dict(drivers)
        self._timeout = timeout
        #: What joins devices of several machines, where something does.
        self.fabric: FabricDriver | None = None
        #: Seconds in which a machine must say what it has.
        self.patience = timeout
        self._silence = silence
        self._under_way: dict[str, dict[asyncio.Timeout, str]] = {}
        #: What each machine last said that it can keep from its devices, and under which account.
        self.cuts: dict[str, Cut] = {}
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

    def give_up(self, machine: str, reason: str) -> None:
        """Abort the calls to a machine: they end as if they had timed out."""
        for scope in (scopes := self._under_way.get(machine, {})):
            scopes[scope] = reason
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
        parts: Parts,
        *,
        owner: str = "",
        joins: Mapping[str, Parts] | None = None,
    ) -> list[MachineFault]:
        """Join devices into a partition of its owner. Returns the machines that failed.

        joins: the same devices by the fabric's names of the partition (`Entry.joins`); None: the
        fabric has it under its own name.
        """

        async def join(driver: Driver, devices: Sequence[int]) -> None:
            # An attribute is asked for, since this is on the way of every creation.
            if hasattr(driver, "configure_for"):
                await cast(OwnedDriver, driver).configure_for(owner, partition, epoch, devices)
            else:
                await driver.configure(partition, epoch, devices)

        if self.fabric is not None:
            for name, joined in (joins or {partition: parts}).items():
                call = self.fabric.join(name, epoch, joined)
                if faults := await self._fabric_call(call, parts):
                    return faults
        return await self._each(parts, join)

    async def reset(self, epoch: int, parts: Parts) -> list[MachineFault]:
        """Reset devices. Returns the machines that failed."""
        return await self._each(parts, lambda driver, devs: driver.reset(epoch, devs))

    async def fence(self, epoch: int, parts: Parts, *, run: str = "") -> list[MachineFault]:
        """Cut older epochs off from devices, and reset them. Returns the machines that did not.

        run: what marks the processes of the launch whose they were.
        """
        return await self._each(parts, lambda driver, devs: driver.fence(epoch, devs, run))

    async def release(self, epoch: int, parts: Parts) -> list[MachineFault]:
        """Reset devices and take them out of their partition. Returns the machines that did
        not."""
        if self.fabric is not None and (
            faults := await self._fabric_call(self.fabric.leave(epoch, parts), parts)
        ):
            return faults
        return await self._each(parts, lambda driver, devs: driver.release(epoch, devs))

    async def _fabric_call(self, call: Awaitable[None], parts: Parts) -> list[MachineFault]:
        """One call for all machines: when it fails, none of them has done its part.

        It comes before theirs: what a machine says of itself after a crash tells whether a step
        was finished, so nothing may be left to do once it has said so.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await call
        except TimeoutError:
            reason = f"the fabric between machines does not answer within {self._timeout:g} s"
        except PodwrightError as error:
            reason = error.message.rstrip(".")
        except Exception as error:  # a driver's own fault must not take the controller down
            reason = f"the fabric between machines failed: {error!r}"
        else:
            return []
        return [MachineFault(machine, reason, False) for machine in parts]

    async def describe(self, machine: str) -> MachineReport:
        """What a machine has. Raises wire.Unavailable when it does not answer in time."""
        driver = self._drivers.get(machine)
        if driver is None:
            raise Unavailable(f"machine {machine} has no driver")
        try:
            async with asyncio.timeout(self.patience):
                report = await driver.describe()
        except TimeoutError:
            raise Unavailable(self._late(machine, self.patience)) from None
        except WrongState as error:
            if error.data.get("incompatible"):
                self.foreign[machine] = error.problem
            raise
        self.foreign.pop(machine, None)
        self.cuts[machine] = Cut(report.cuts_off, report.uid)
        self.accept(machine, report)
        return report

    async def _each(
        self, parts: Parts, call: Callable[[Driver, Sequence[int]], Awaitable[None]]
    ) -> list[MachineFault]:
        if len(parts) == 1:  # the common case needs no task
            for machine, devices in parts.items():
                fault = await self._one_machine(machine, devices, call)
                return [fault] if fault else []
        answers = await asyncio.gather(
            *(self._one_machine(m, driver, call) for m, driver in parts.items())
        )
        return [fault for fault in answers if fault]

    async def _one_machine(
        self,
        machine: str,
        devices: Sequence[int],
        call: Callable[[Driver, Sequence[int]], Awaitable[None]],
    ) -> MachineFault | None:
        driver = self._drivers.get(machine)
        if driver is None:
            return MachineFault(machine, f"machine {machine} has no driver", True)
        scopes = self._under_way.setdefault(machine, {})
        scope = asyncio.timeout(self._timeout)
        scopes[scope] = ""
        try:
            async with scope:
                await call(driver, devices)
        except TimeoutError:
            fault = MachineFault(machine, scopes[scope] or self._late(machine, self._timeout), True)
        except PodwrightError as error:
            fault = MachineFault(machine, error.message.rstrip("."), isinstance(error, Unavailable))
        except Exception as error:  # a driver's own fault must not take the controller down
            fault = MachineFault(machine, f"machine {machine} failed: {error!r}", False)
        else:
            return None
        finally:
            del scopes[scope]
        if fault.silent:
            self._silence(machine)
        return fault

    def _late(self, machine: str, seconds: float) -> str:
        return f"machine {machine} does not answer within {seconds:g} s"
