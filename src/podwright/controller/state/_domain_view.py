"""The devices of a link domain as of now: whose each is, and what it is doing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from podwright.controller.state._cluster_index import IndexedCluster
from podwright.placement import Block
from podwright.wire import OperationState

if TYPE_CHECKING:
    from podwright.controller.state._controller_state import ControllerState
    from podwright.controller.state._partition_index import PartitionEntry

#: States of devices, as callers see them. Of several, the earliest one is shown.
STATES: Final = ("DOWN", "RESETTING", "DRAINED", "RESERVED", "IN_USE", "FREE")
_RESETTING: Final = (OperationState.RESETTING, OperationState.REMOVING)
#: A link domain: its cluster, and its place in it.
DomainKey = tuple[str, int]


class ClaimedBlocks:
    """Blocks that no partition has and that are not free either, by link domain.

    waiting: those that still have to be reset. kept: those that are kept for somebody, and for
    whom.
    """

    def __init__(self, state: ControllerState) -> None:
        self.waiting: dict[DomainKey, list[Block]] = {}
        self.kept: dict[DomainKey, list[tuple[Block, str]]] = {}
        for quarantined in state.quarantine.values():
            key = (quarantined.cluster, quarantined.block.domain)
            self.waiting.setdefault(key, []).append(quarantined.block)
        for (name, _), reservation in state.reservations.items():
            for placement in reservation.placements:
                self._keep(name, placement.blocks, reservation.waiter)
        for move in state.moves.values():
            self._keep(move.cluster.layout.name, move.target.blocks, move.partition)

    def _keep(self, cluster_name: str, blocks: Sequence[Block], name: str) -> None:
        for block in blocks:
            self.kept.setdefault((cluster_name, block.domain), []).append((block, name))

    def changed_since(self, earlier: ClaimedBlocks) -> Iterator[DomainKey]:
        """The link domains of which something is claimed otherwise than earlier."""
        for now, then in ((self.waiting, earlier.waiting), (self.kept, earlier.kept)):
            for key in now.keys() | then.keys():
                if now.get(key) != then.get(key):
                    yield key


class DomainView(NamedTuple):
    """A link domain. All lists have an item for each device, in order.

    owners: the name of the partition that has it, or empty. states: one of STATES. kept: for whom
    devices in the state RESERVED are kept, by offset. free: the devices that are free, as bits.
    """

    owners: list[str]
    states: list[str]
    kept: dict[int, str]
    free: int


def view_domain(
    state: ControllerState, cluster: IndexedCluster, domain: int, claimed: ClaimedBlocks
) -> DomainView:
    """Look at a link domain. claimed: as of now."""
    key = (cluster.layout.name, domain)
    size = len(cluster.refs[domain])
    owners = [""] * size
    used = down = drained = resetting = kept = 0
    entries: dict[PartitionEntry, None] = {}  # one may be on several machines
    per_machine = cluster.layout.family.devices_per_machine
    for number, machine in enumerate(cluster.layout.domains[domain].machines):
        whole = _bits(number * per_machine, per_machine)
        if machine.name in state.down:
            down |= whole
        for index in cluster.unhealthy.get(machine.name, ()):
            down |= 1 << number * per_machine + index
        if machine.name in cluster.drained:
            drained |= whole
        entries.update(dict.fromkeys(state.partitions.on(machine.name)))
    for entry in entries:
        is_resetting = entry.known.operation in _RESETTING
        for block in entry.known.blocks:
            if block.domain == domain:
                bits = _bits(block.offset, block.size)
                used |= bits
                resetting |= bits if is_resetting else 0
                owners[block.offset : block.offset + block.size] = [entry.name] * block.size
    for block in claimed.waiting.get(key, ()):
        resetting |= _bits(block.offset, block.size)
    kept_for: dict[int, str] = {}
    for block, name in claimed.kept.get(key, ()):
        kept |= _bits(block.offset, block.size)
        kept_for.update(dict.fromkeys(range(block.offset, block.offset + block.size), name))
    states = ["FREE"] * size
    rest = _bits(0, size)
    for name, bits in zip(STATES, (down, resetting, drained & ~used, kept, used), strict=False):
        shown, rest = bits & rest, rest & ~bits
        while shown:
            lowest = shown & -shown
            states[lowest.bit_length() - 1] = name
            shown ^= lowest
    kept_shown = {at: name for at, name in kept_for.items() if states[at] == "RESERVED"}
    return DomainView(owners, states, kept_shown, rest)


def _bits(first: int, count: int) -> int:
    return ((1 << count) - 1) << first
