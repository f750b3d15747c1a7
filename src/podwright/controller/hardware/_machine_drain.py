"""Machines that an administrator takes out of service and back: drain and resume.

A drained machine takes nothing new and keeps what is on it. The drain is written down with its
reason, and outlives restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._records import DRAIN, DrainRecord, decode, put_drain
from podwright.errors import InvalidRequest, NotFound
from podwright.store import Delete

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState

LONGEST_REASON: Final = 200  #: letters


def load(state: ControllerState, stored_records: Mapping[tuple[str, str], bytes]) -> None:
    """Drain the machines that were drained before."""
    for (kind, machine), stored in stored_records.items():
        cluster = state.inventory.by_machine.get(machine)
        if kind == DRAIN and cluster is not None:
            cluster.drains[machine] = decode(DrainRecord, stored)
            cluster.index.drain(machine)


async def drain(state: ControllerState, machine: str, reason: str, who: str) -> None:
    """Let a machine take nothing new. One that is drained already stays so; a reason replaces its
    earlier one.

    Raises NotFound, and InvalidRequest for a reason that cannot be shown in a line.
    """
    action = f"drain machine {machine[:80]}"
    cluster = _cluster_of_machine(state, machine, action)
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise InvalidRequest(
            "the reason is too long or not printable",
            operation=action,
            would_work=f"a line of up to {LONGEST_REASON} letters",
        )
    known = cluster.drains.get(machine)
    if known is None or reason not in ("", known.reason):
        record = DrainRecord(reason=reason, who=who, at=known.at if known else state.wall())
        await state.journal.commit([put_drain(machine, record)])
        cluster.drains[machine] = record
    if known is None:
        cluster.index.drain(machine)
        cluster.touch_machine(machine)
        state.freed(None, (), "")  # places that were kept there are thought over


async def resume(state: ControllerState, machine: str) -> None:
    """Let a machine serve again. Raises NotFound."""
    cluster = _cluster_of_machine(state, machine, f"resume machine {machine[:80]}")
    await state.journal.commit([Delete(DRAIN, machine)])
    if cluster.drains.pop(machine, None) is not None:
        cluster.touch_machine(machine)
        if machine not in state.down:
            cluster.index.resume(machine)
        state.freed(None, (), "")


def _cluster_of_machine(state: ControllerState, machine: str, action: str) -> IndexedCluster:
    cluster = state.inventory.by_machine.get(machine)
    if cluster is None:
        names = list(state.inventory.by_machine)
        more_machines = f" and {len(names) - 5} more" if names[5:] else ""
        raise NotFound(
            f"there is no machine {machine[:80]}",
            operation=action,
            would_work=f"there are: {', '.join(names[:5])}{more_machines}",
            machine=machine[:80],
        )
    return cluster
