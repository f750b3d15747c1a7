"""The part of a pod that each guest would have, were the pod split among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from podwright.errors import InvalidRequest
from podwright.fabric import IPU

_STEP: Final = IPU.devices_per_machine


def split(
    devices: int, weights: Mapping[str, float], given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return how many devices each guest gets of a pod. Raises InvalidRequest.

    weights: of the guests, by their names. given: the parts that are set. What these leave is split
    in proportion to the weights of the other guests. A part is whole machines, at least one. What
    rounding down leaves goes to the guests that rounding took most from.
    """
    given = dict(given or {})
    for name, size in given.items():
        if size <= 0 or size % _STEP:
            raise InvalidRequest(
                f"the part of {name} is {size} devices",
                operation="split the pod",
                would_work=f"a multiple of {_STEP}: whole machines",
            )
    rest = {name: weight for name, weight in weights.items() if name not in given}
    left = devices - sum(given.values())
    if left < _STEP * len(rest):
        raise InvalidRequest(
            f"{len(weights)} parts do not fit into a pod of {devices} devices",
            operation="split the pod",
            would_work=f"a larger --pod, or smaller parts: each guest needs {_STEP} devices",
        )
    total = sum(rest.values())
    exact = {name: left * weight / total for name, weight in rest.items()}
    parts = {name: max(_STEP, int(size // _STEP) * _STEP) for name, size in exact.items()}
    while (excess := sum(parts.values()) - left) > 0:  # somebody got a machine for less than that
        name = max(parts, key=lambda name: (parts[name] - exact[name], parts[name]))
        name = name if parts[name] > _STEP else max(parts, key=lambda name: parts[name])
        parts[name] -= min(excess, _STEP)
    while rest and left - sum(parts.values()) >= _STEP:
        parts[max(parts, key=lambda name: exact[name] - parts[name])] += _STEP
    return {name: given.get(name, 0) or parts[name] for name in weights}
