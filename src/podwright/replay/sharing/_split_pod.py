"""The part of a pod that each guest would have, were the pod split among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from podwright.errors import InvalidRequest
from podwright.fabric import IPU

_PART_STEP_DEVICES: Final = IPU.devices_per_machine


def split(
    devices: int, weights: Mapping[str, float], fixed_parts: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return how many devices each guest gets of a pod. Raises InvalidRequest.

    weights: of the guests, by their names. fixed_parts: those that are given. What these leave is
    split in proportion to the weights of the other guests. A part is whole machines, at least one.
    What rounding down leaves goes to the guests that rounding took most from.
    """
    fixed_parts = dict(fixed_parts or {})
    for guest_name, part_size in fixed_parts.items():
        if part_size <= 0 or part_size % _PART_STEP_DEVICES:
            raise InvalidRequest(
                f"the part of {guest_name} is {part_size} devices",
                operation="split the pod",
                would_work=f"a multiple of {_PART_STEP_DEVICES}: whole machines",
            )
    open_weights = {
        guest_name: weight
        for guest_name, weight in weights.items()
        if guest_name not in fixed_parts
    }
    devices_left = devices - sum(fixed_parts.values())
    if devices_left < _PART_STEP_DEVICES * len(open_weights):
        raise InvalidRequest(
            f"{len(weights)} parts do not fit into a pod of {devices} devices",
            operation="split the pod",
            would_work=f"a larger --pod, or smaller parts: each guest needs {_PART_STEP_DEVICES} "
            "devices",
        )
    total_weight = sum(open_weights.values())
    exact_parts = {
        guest_name: devices_left * weight / total_weight
        for guest_name, weight in open_weights.items()
    }
    parts = {
        guest_name: max(
            _PART_STEP_DEVICES, int(part_size // _PART_STEP_DEVICES) * _PART_STEP_DEVICES
        )
        for guest_name, part_size in exact_parts.items()
    }
    # Each guest has at least one step, so the parts may exceed what there is.
    while (excess := sum(parts.values()) - devices_left) > 0:
        guest_name = max(
            parts,
            key=lambda guest_name: (parts[guest_name] - exact_parts[guest_name], parts[guest_name]),
        )
        guest_name = (
            guest_name
            if parts[guest_name] > _PART_STEP_DEVICES
            else max(parts, key=lambda guest_name: parts[guest_name])
        )
        parts[guest_name] -= min(excess, _PART_STEP_DEVICES)
    while open_weights and devices_left - sum(parts.values()) >= _PART_STEP_DEVICES:
        parts[max(parts, key=lambda guest_name: exact_parts[guest_name] - parts[guest_name])] += (
            _PART_STEP_DEVICES
        )
    return {
        guest_name: fixed_parts.get(guest_name, 0) or parts[guest_name] for guest_name in weights
    }
