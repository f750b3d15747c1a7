"""A rack's GPUs reach each other once all of them are in one clique, which only a reset changes.

The fabric's manager puts GPUs into a partition at once. The GPUs themselves report the clique of
their earlier partition until they are reset (GB200: NVIDIA's guide to Multi-Node NVLink). So a
partition is ready when its GPUs agree, and share their clique with no other GPU of the rack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from podwright.controller.state._cluster_index import IndexedCluster
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._machine_calls import DevicesByMachine, MachineFault
from podwright.controller.state._partition_index import PartitionEntry
from podwright.errors import PodwrightError

#: Seconds between two looks after a reset: a GPU joins its clique some time after it.
_PAUSES_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)

Cliques = Mapping[tuple[str, int], str]


async def settle_cliques(
    state: ControllerState, entry: PartitionEntry, epoch: int, parts: DevicesByMachine
) -> list[MachineFault]:
    """Reset those of these devices whose clique is not yet the partition's, and look again.

    Machines whose GPUs are in no rack are not asked anything.
    """
    cluster = entry.cluster
    if cluster is None or not any(_in_rack(cluster, machine) for machine in parts):
        return []
    try:
        cliques = await _cliques(state, cluster, parts)
        if not (strangers := _outside(cliques, entry.parts(), parts)):
            return []
        if faults := await state.hardware.reset(epoch, strangers):
            return faults
        for pause in _PAUSES_S:
            cliques = await _cliques(state, cluster, parts)
            if not (strangers := _outside(cliques, entry.parts(), parts)):
                return []
            await asyncio.sleep(pause)
    except PodwrightError as error:
        return [MachineFault(next(iter(parts)), error.problem, False)]
    return [
        MachineFault(
            machine,
            f"GPU {indices[0]} of machine {machine} is in clique "
            f"{cliques[machine, indices[0]] or 'none'} after its reset, and not with the other "
            f"GPUs of partition {entry.name} alone; vipu-agent --reset lets the agent reset GPUs",
            False,
        )
        for machine, indices in strangers.items()
    ]


async def _cliques(
    state: ControllerState, cluster: IndexedCluster, parts: DevicesByMachine
) -> Cliques:
    """Return the cliques of all GPUs of the rack: those of these machines as they are now."""
    for machine in parts:
        cluster.learn(machine, await state.hardware.describe(machine))
    return {
        (machine, index): attributes.get("fabric", "")
        for machine in cluster.machines()
        for index, attributes in enumerate(cluster.attributes_in(machine))
        if _is_rack_gpu(attributes)
    }


def _outside(
    cliques: Cliques, whole: DevicesByMachine, parts: DevicesByMachine
) -> dict[str, list[int]]:
    """Return those devices of `parts` that do not share a clique with exactly the partition."""
    members = {
        (machine, index)
        for machine, indices in whole.items()
        for index in indices
        if (machine, index) in cliques
    }
    others = {clique for place, clique in cliques.items() if place not in members}
    counts: dict[str, int] = {}
    for place in members:
        if (clique := cliques[place]) and clique not in others:
            counts[clique] = counts.get(clique, 0) + 1
    right = max(counts, key=lambda clique: counts[clique], default="")
    wrong: dict[str, list[int]] = {}
    for machine, indices in parts.items():
        for index in indices:
            if (machine, index) in members and (cliques[machine, index] or "-") != right:
                wrong.setdefault(machine, []).append(index)
    return wrong


def _in_rack(cluster: IndexedCluster, machine: str) -> bool:
    return any(map(_is_rack_gpu, cluster.attributes_in(machine)))


def _is_rack_gpu(attributes: Mapping[str, str]) -> bool:
    return "fabric guid" in attributes
