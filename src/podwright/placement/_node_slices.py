"""Slices of GPUs (MIG), which are devices of their own and go only to those who ask for them.

A CUDA program uses one slice, so each is a GCD; those of a partition lie in one machine, and in
the one where fewest are left (our choices). Blind to allocations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podwright.placement._shape_rules import Illegal
from podwright.placement._values import Refusal, Request


def check_slices(request: Request) -> None:
    """Raises Illegal for a shape that slices cannot have."""
    if request.size <= 0:
        raise Illegal("a partition has at least one device", of_size=True)
    if request.gcds != request.size:
        raise Illegal("a program uses one slice: there are as many GCDs as slices")
    if request.domains not in (None, 1):
        raise Illegal("the slices of a partition lie in one machine, so in one link domain")


class Slices:
    """Which devices of which machines are slices, as masks by profile."""

    def __init__(self) -> None:
        self._masks: dict[str, dict[str, int]] = {}

    def cut(self, machine: str, profiles: Mapping[int, str]) -> None:
        """A machine has these, by the index of the device, and no others."""
        masks = self._masks[machine] = {}
        for index, profile in profiles.items():
            masks[profile] = masks.get(profile, 0) | 1 << index
        if not masks:
            del self._masks[machine]

    def of(self, machine: str) -> int:
        """All slices of a machine."""
        masks = self._masks.get(machine)
        return sum(masks.values()) if masks else 0

    def pick(
        self, request: Request, machines: Iterable[str], free: Mapping[str, int]
    ) -> dict[str, int]:
        """The slices for a request, as a mask of one machine; empty where there are too few."""
        found = [
            (mask.bit_count(), machine, mask)
            for machine in machines
            if (mask := self._of(machine, request.profile) & free[machine]).bit_count()
            >= request.size
        ]
        if not found:
            return {}
        count, machine, mask = min(found)
        for _ in range(count - request.size):
            mask &= ~(1 << (mask.bit_length() - 1))
        return {machine: mask}

    def refuse(self, request: Request, machines: Iterable[str], free: Mapping[str, int]) -> Refusal:
        """Why there is no place for a request."""
        every, profile = list(machines), request.profile
        there = [self._of(machine, profile).bit_count() for machine in every]
        now = [(self._of(machine, profile) & free[machine]).bit_count() for machine in every]
        most, largest = max(there, default=0), max(now, default=0)
        kinds = sorted({kind for machine in every for kind in self._masks.get(machine, ())})
        if not most:
            rule = (
                f"no GPU is cut into slices of {profile}; there are: {', '.join(kinds) or 'none'}"
            )
            return Refusal(True, rule, sum(now), largest)
        if most < request.size:
            rule = f"no machine has more than {most} slice{'s' * (most > 1)} of {profile}"
            return Refusal(True, rule, sum(now), largest, (most,))
        rule = f"{request.size} slices of {profile} are asked for, and no machine has more than "
        return Refusal(False, f"{rule}{largest} free", sum(now), largest)

    def _of(self, machine: str, profile: str) -> int:
        return self._masks.get(machine, {}).get(profile, 0)
