"""Requests to placement, and its answers. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Block(NamedTuple):
    """Consecutive devices of one link domain: `size` devices from `offset` on."""

    domain: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Request:
    """A shape to place.

    size: devices in all.
    allocation: where to look; None takes any allocation, in the order of their definition.
    domains: link domains to span; None lets the family decide (the fewest).
    gcds: parts of equal size that each lie in one link domain.
    blocks: the very devices wanted, or None.
    profile: slices of this kind; empty for whole devices.
    """

    size: int
    allocation: str | None = None
    domains: int | None = None
    gcds: int = 1
    blocks: tuple[Block, ...] | None = None
    profile: str = ""


class _IndexStamp:
    """A slot by which an index recognises what it made.

    It is not part of the value and never compared.
    """

    __slots__ = ("place",)
    place: Any


@dataclass(frozen=True, slots=True)
class Placement(_IndexStamp):
    """The devices that a request gets. `gcds` splits `blocks` in routing order."""

    allocation: str
    blocks: tuple[Block, ...]
    gcds: tuple[Block, ...]

    @property
    def size(self) -> int:
        """The number of devices."""
        return sum(block.size for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request has no place.

    never: True when the hardware has no such shape at all; False when it is only taken now.
    rule: the rule that stands in the way, as a sentence without its full stop.
    free: devices free in the allocation (or in all of those that were looked at).
    largest: the largest request of the same kind that would be placed now; 0 for none.
    nearest_sizes: legal sizes near the one asked for, when the size itself is illegal.
    """

    never: bool
    rule: str
    free: int = 0
    largest: int = 0
    nearest_sizes: tuple[int, ...] = ()


def are(count: int, noun: str = "") -> str:
    """Return how many there are, up to the verb: `1 GPU is`, `16 IPUs are`, `0 are`."""
    if not noun:
        return f"{count} is" if count == 1 else f"{count} are"
    return f"1 {noun} is" if count == 1 else f"{count} {noun}s are"
