"""The fault kit: random calls and faults from a seed, which every driver of a fabric must survive.

A run plays the controller. It joins devices and takes them out under growing epochs, while the rig
injects faults. After each call that succeeds, the rig's truth must be exactly what the calls
wanted. A call that fails is repeated or undone until it succeeds, as the controller does. At every
moment no device is in two partitions, and no other party's partition has changed. Between calls
the fabric changes by itself (`_fabric_conditions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from podwright.errors import Fenced, PodwrightError, WrongState
from podwright.testing._controller_life import HARMLESS_FAULTS, ControllerLife, FabricRun
from podwright.testing._fabric_conditions import CHECKS
from podwright.testing._fabric_rig import ContractBroken, FabricRig

_STEPS_PER_RUN = 20
#: The seconds for which a call is watched that should wait for its turn. A driver that breaks the
#: contract ends the call sooner; a driver that keeps it takes this long and goes on.
_GLANCE_SECONDS = 0.02


async def check_fabric_driver(rig: FabricRig, seed: int) -> FabricRun:
    """Do one run. Raises ContractBroken, which names the seed. A rig serves one run only."""
    life = _Play(rig, seed)
    try:
        await life.play()
    except ContractBroken as error:
        raise ContractBroken(f"seed {seed}, call {life.run.calls}: {error}") from None
    return life.run


class _Play(ControllerLife):
    async def play(self) -> None:
        """Make all calls of a run."""
        actions: tuple[Callable[[], Awaitable[None]], ...] = (
            self._join_devices,
            self._join_devices,
            self._leave_partition,
            self._check_theft_refused,
            self._check_stale_epoch,
            self._check_abandoned_call,
            *(partial(check, self) for check in CHECKS),
        )
        for _ in range(_STEPS_PER_RUN):
            await self.random.choice(actions)()
            self.rig.heal()
            self.compare_with_truth("once the faults have ended")
        all_devices = frozenset().union(*self.wanted.values()) if self.wanted else frozenset()
        if all_devices:
            await self.call_until_done("", all_devices, with_faults=False)
        self.compare_with_truth("at the end")
        reading = await self.driver.read()
        if partitions := dict(reading.partitions):
            raise ContractBroken(f"read() shows {partitions}, and nothing is joined")

    # -- what a controller does ----------------------------------------------------------------

    async def _join_devices(self) -> None:
        partition = self.random.choice(["a", "b", "c"])
        if chosen_devices := self.sample_devices(self.free_devices()):
            await self.call_until_done(partition, chosen_devices, with_faults=True)

    async def _leave_partition(self) -> None:
        if self.wanted:
            members = self.wanted[self.random.choice(sorted(self.wanted))]
            await self.call_until_done("", self.sample_devices(sorted(members)), with_faults=True)

    async def _check_theft_refused(self) -> None:
        """Check that a join is refused for a device of another partition, Podwright's or
        foreign.
        """
        known_partitions = [*self.wanted.values(), *self.rig.foreign().values()]
        partitions = [members for members in known_partitions if members]
        if not partitions:
            return
        victim_members = self.random.choice(sorted(partitions, key=sorted))
        stolen_device = self.random.choice(sorted(victim_members))
        self.maybe_inject(HARMLESS_FAULTS)
        truth_before = self.rig.truth()
        try:
            await self.call("thief", self.next_epoch(), frozenset([stolen_device]))
        except PodwrightError:
            self.check_no_violation()
        else:
            raise ContractBroken(
                f"joining {stolen_device}, which another partition has, ended well"
            )
        if self.rig.truth() != truth_before:
            raise ContractBroken(
                f"joining {stolen_device}, which another partition has, changed something"
            )

    async def _check_stale_epoch(self) -> None:
        """Check that a call under an old epoch changes nothing."""
        if not self.wanted:
            return
        members = self.wanted[self.random.choice(sorted(self.wanted))]
        partition = self.random.choice(["", "stale"])
        self.rig.heal()
        try:
            await self.call(partition, 1, self.sample_devices(sorted(members)))
        except Fenced:
            return
        except WrongState:
            return
        raise ContractBroken("a call under an old epoch ended well, and would change something")

    async def _check_abandoned_call(self) -> None:
        """Check that a call waits for the end of an earlier call whose caller gave up."""
        partition_names = [
            partition for partition, members in self.wanted.items() if len(members) > 1
        ]
        gate = self.rig.gate() if partition_names else None
        if gate is None:
            return
        first_device, second_device = self.random.sample(sorted(self.wanted[partition_names[0]]), 2)
        self._epoch += 2
        earlier_call = asyncio.ensure_future(
            self.call("", self._epoch - 1, frozenset([first_device]))
        )
        gate_wait = asyncio.ensure_future(asyncio.to_thread(gate.reached.wait, 60))
        await asyncio.wait({earlier_call, gate_wait}, return_when=asyncio.FIRST_COMPLETED)
        earlier_call.cancel()
        later_call = asyncio.ensure_future(self.call("", self._epoch, frozenset([second_device])))
        await asyncio.wait({later_call}, timeout=_GLANCE_SECONDS)
        gate.open()
        outcomes = await asyncio.gather(earlier_call, later_call, gate_wait, return_exceptions=True)
        if isinstance(outcomes[1], BaseException):
            raise ContractBroken(f"a call after one that was given up failed: {outcomes[1]!r}")
        # The request that was on its way may take effect after the caller gave up.
        await self.driver.read()
        self._forget({first_device, second_device})
        self.compare_with_truth("after a caller gave up on an earlier call")
