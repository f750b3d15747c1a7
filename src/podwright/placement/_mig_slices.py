"""Slices of GPUs (MIG). They are devices of their own and go only to requests that ask for them.

A CUDA program uses one slice, so each slice is a GCD. The slices of a partition lie in one machine,
the one with the fewest free slices that suffices. Both are our choices. The rules do not depend on
allocations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podwright.placement._placement_types import Refusal, Request
from podwright.placement._shape_rules import IllegalShape


def check_slices(request: Request) -> None:
    """Raise Illegal for a shape that slices cannot have."""
    if request.size <= 0:
        raise IllegalShape("a partition has at least one device", of_size=True)
    if request.gcds != request.size:
        raise IllegalShape("a program uses one slice: there are as many GCDs as slices")
    if request.domains not in (None, 1):
        raise IllegalShape("the slices of a partition lie in one machine, so in one link domain")


class MachineSlices:
    """The slices of each machine, as masks of devices by profile."""

    def __init__(self) -> None:
        self._masks: dict[str, dict[str, int]] = {}

    def cut(self, machine: str, profiles: Mapping[int, str]) -> None:
        """Set the slices of a machine.

        profiles: device index -> profile; all other devices are whole.
        """
        masks_by_profile = self._masks[machine] = {}
        for index, profile in profiles.items():
            masks_by_profile[profile] = masks_by_profile.get(profile, 0) | 1 << index
        if not masks_by_profile:
            del self._masks[machine]

    def of(self, machine: str) -> int:
        """Return the mask of all slices of a machine."""
        masks_by_profile = self._masks.get(machine)
        return sum(masks_by_profile.values()) if masks_by_profile else 0

    def pick(
        self, request: Request, machines: Iterable[str], free_masks: Mapping[str, int]
    ) -> dict[str, int]:
        """Return the slices for a request as a mask of one machine; empty if there are too few."""
        candidates = [
            (mask.bit_count(), machine, mask)
            for machine in machines
            if (mask := self._of(machine, request.profile) & free_masks[machine]).bit_count()
            >= request.size
        ]
        if not candidates:
            return {}
        count, machine, mask = min(candidates)
        for _ in range(count - request.size):
            mask &= ~(1 << (mask.bit_length() - 1))
        return {machine: mask}

    def refuse(
        self, request: Request, machines: Iterable[str], free_masks: Mapping[str, int]
    ) -> Refusal:
        """Return why there is no place for a request."""
        all_machines, profile = list(machines), request.profile
        slice_counts = [self._of(machine, profile).bit_count() for machine in all_machines]
        free_slice_counts = [
            (self._of(machine, profile) & free_masks[machine]).bit_count()
            for machine in all_machines
        ]
        most_slices, most_free_slices = (
            max(slice_counts, default=0),
            max(free_slice_counts, default=0),
        )
        all_profiles = sorted(
            {
                cut_profile
                for machine in all_machines
                for cut_profile in self._masks.get(machine, ())
            }
        )
        if not most_slices:
            rule = (
                f"no GPU is cut into slices of {profile}; there are: "
                f"{', '.join(all_profiles) or 'none'}"
            )
            return Refusal(True, rule, sum(free_slice_counts), most_free_slices)
        if most_slices < request.size:
            rule = (
                f"no machine has more than {most_slices} slice{'s' * (most_slices > 1)} of "
                f"{profile}"
            )
            return Refusal(True, rule, sum(free_slice_counts), most_free_slices, (most_slices,))
        rule = f"{request.size} slices of {profile} are asked for, and no machine has more than "
        return Refusal(
            False, f"{rule}{most_free_slices} free", sum(free_slice_counts), most_free_slices
        )

    def _of(self, machine: str, profile: str) -> int:
        return self._masks.get(machine, {}).get(profile, 0)
