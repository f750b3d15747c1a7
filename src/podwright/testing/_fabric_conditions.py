"""What the fault kit checks between calls: a fabric that changed, or that a killed server left.

A rig that offers `Changeable` can be made unhealthy, lose devices, or give them back too late. A
driver then refuses, shows what is there, and mends it when it is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from podwright.agents import FabricDevice, named_devices
from podwright.errors import Fenced, PodwrightError
from podwright.testing._controller_life import ControllerLife
from podwright.testing._fabric_rig import (
    Affected,
    Changeable,
    ContractBroken,
    FabricCondition,
    FabricFault,
    Killed,
)


async def check_condition(life: ControllerLife) -> None:
    """Bring a condition about, and hold the driver to what follows from it."""
    rig = life.rig
    if not isinstance(rig, Changeable):
        return
    condition = life.random.choice(list(FabricCondition))
    affected = rig.change(condition, life.random)
    if affected is None:
        return
    life.run.conditions[condition] = life.run.conditions.get(condition, 0) + 1
    match condition:
        case FabricCondition.LOST_DEVICE:
            await _check_shown(life, affected, present=False)
            await life.call(affected.partition, life.next_epoch(), affected.devices)
        case FabricCondition.LATE_ARRIVAL:
            await _check_shown(life, affected, present=True)
            await life.call_until_done("", affected.devices, with_faults=False)
        case FabricCondition.UNHEALTHY:
            devices = life.sample_devices(life.free_devices())
            if devices:
                await _check_refused(life, affected.partition, devices, condition)
                rig.heal()
                await life.call_until_done("", devices, with_faults=False)
        case FabricCondition.UNKNOWN_MEMBER:
            devices = life.sample_devices(life.free_devices())
            if devices:
                await _check_unchanged(life, affected.partition, devices, condition)
        case _:
            await _check_unchanged(life, "d", affected.devices, condition)


async def check_kill_without_repeat(life: ControllerLife) -> None:
    """Check that a call that a kill interrupted is finished by the next call, on other devices.

    Its intent is durable before its first request. So once a request was on its way, the next
    server carries the call out, although nobody repeats it.
    """
    free = life.free_devices()
    if len(free) < 3:
        return
    devices = life.sample_devices(free[1:])
    fault = life.random.choice([FabricFault.KILL_BEFORE, FabricFault.KILL_AFTER])
    if not life.rig.inject(fault, life.random):
        return
    try:
        await life.call("a", life.next_epoch(), devices)
    except Killed:
        life.run.kills += 1
        life.driver = life.rig.driver(life.journal)
    life.rig.heal()
    life.note_call_done("a", devices)
    await life.call_until_done("b", frozenset(free[:1]), with_faults=False)


async def check_epoch_of_a_call_that_changes_nothing(life: ControllerLife) -> None:
    """Check that a call that finds its devices joined still makes older calls void."""
    if not life.wanted:
        return
    partition = life.random.choice(sorted(life.wanted))
    members = life.wanted[partition]
    older, newer = life.next_epoch(), life.next_epoch()
    await life.call(partition, newer, members)
    try:
        await life.call("", older, members)
    except Fenced:
        return
    raise ContractBroken("a call ended well under an epoch older than that of a repeated call")


async def check_replaced_server(life: ControllerLife) -> None:
    """Check that a server whose store another one has taken over changes nothing any more."""
    devices = life.sample_devices(life.free_devices())
    if not devices:
        return
    driver, journal = life.driver, life.journal
    life.take_over()
    before = life.rig.truth()
    journal.replaced = True
    try:
        await life.call("old", life.next_epoch(), devices, driver=driver)
    except PodwrightError:
        if life.rig.truth() == before:
            return
    raise ContractBroken("a server that was replaced changed the fabric")


async def _check_shown(life: ControllerLife, affected: Affected, *, present: bool) -> None:
    reading = await life.driver.read(tuple(life.rig.machines))
    members = reading.partitions.get(affected.partition, frozenset())
    if present != (affected.devices <= members):
        raise ContractBroken(
            f"read() shows {named_devices(members) or 'nothing'} in {affected.partition}, and "
            f"{named_devices(affected.devices)} {'came' if present else 'went'} meanwhile"
        )


async def _check_refused(
    life: ControllerLife, name: str, devices: frozenset[FabricDevice], condition: FabricCondition
) -> None:
    try:
        await life.call(name, life.next_epoch(), devices)
    except PodwrightError:
        return
    raise ContractBroken(
        f"joining {named_devices(devices)} to partition {name} ended well: {condition.value}"
    )


async def _check_unchanged(
    life: ControllerLife, name: str, devices: frozenset[FabricDevice], condition: FabricCondition
) -> None:
    before = life.rig.truth()
    await _check_refused(life, name, devices, condition)
    if life.rig.truth() != before:
        raise ContractBroken(f"a call that was refused changed something: {condition.value}")


#: Each is played in turn with the kit's other actions.
CHECKS: tuple[Callable[[ControllerLife], Awaitable[None]], ...] = (
    check_condition,
    check_condition,
    check_kill_without_repeat,
    check_epoch_of_a_call_that_changes_nothing,
    check_replaced_server,
)
