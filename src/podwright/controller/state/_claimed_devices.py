"""Devices that somebody has taken, and that no record tells of yet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Admission:
    """Devices that somebody has taken for a partition that no record tells of yet.

    instead_of: the partition that goes for it, or empty; until then the larger of both counts.
    """

    owner: str
    allocation: str
    size: int
    instead_of: str = ""
