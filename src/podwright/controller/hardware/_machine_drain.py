"""Machines that an administrator takes out of service and back: drain and resume.

A drained machine takes nothing new and keeps what is on it. It is written down, and outlives
restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from podwright.controller.state._cluster_index import IndexedCluster
from podwright.errors import NotFound
from podwright.store import Delete, Put

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState

DRAIN: Final = "drain"


def load(state: ControllerState, stored_records: Mapping[tuple[str, str], bytes]) -> None:
    """Drain the machines that were drained before."""
    for kind, machine in stored_records:
        cluster = state.inventory.by_machine.get(machine)
        if kind == DRAIN and cluster is not None:
            cluster.drained.add(machine)
            cluster.index.drain(machine)


async def drain(state: ControllerState, machine: str) -> None:
    """Let a machine take nothing new. Raises NotFound; one that is drained already stays so."""
    cluster = _cluster_of_machine(state, machine, f"drain machine {machine[:80]}")
    await state.journal.commit([Put(DRAIN, machine, b"{}")])
    if machine not in cluster.drained:
        cluster.drained.add(machine)
        cluster.index.drain(machine)
        cluster.touch_machine(machine)
        state.freed(None, (), "")  # places that were kept there are thought over


async def resume(state: ControllerState, machine: str) -> None:
    """Let a machine serve again. Raises NotFound."""
    cluster = _cluster_of_machine(state, machine, f"resume machine {machine[:80]}")
    await state.journal.commit([Delete(DRAIN, machine)])
    if machine in cluster.drained:
        cluster.drained.discard(machine)
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
