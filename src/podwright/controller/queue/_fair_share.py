"""Whose turn it is among those that share a pod: schedulers, and the people of the server's queue.

Each is a guest. While a guest waits for devices, the device-seconds that it holds or has kept are
added to its use. The waiting guest with the least use for its weight is served next. A guest that
begins to wait starts at the least use of those that wait already. So nobody saves up turns by not
using the pod, and nobody pays for the time in which there was enough for all.

A guest that waits is never served before another one that waits and has less use. A guest that is
ahead of the others therefore waits until their use has grown past its own, and then for at most one
more request of each of them (docs/design/common-queue.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from podwright.errors import InvalidRequest

#: The guest that all waiters of the server's own queue are.
PEOPLE: Final = ""
LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 1000.0


@dataclass(frozen=True)
class Sharing:
    """How a site shares its pods. enabled: keep devices for schedulers' jobs, in turn. weights: by
    the name of a scheduler, or `people`, for those without a stored one; 1 where none is given.
    """

    enabled: bool = True
    weights: Mapping[str, float] = field(default_factory=dict)


def weights_of(arguments: Iterable[str]) -> dict[str, float]:
    """`NAME=N` as weights by name. Raises InvalidRequest."""
    weights: dict[str, float] = {}
    for argument in arguments:
        guest_label, _, weight_text = argument.rpartition("=")
        try:
            weight = float(weight_text)
        except ValueError:
            weight = 0.0
        if not guest_label.strip() or not is_weight(weight):
            raise InvalidRequest(
                f"{argument[:80]!r} is not a scheduler's weight",
                operation="--share",
                would_work=f"NAME=N with N from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, as in "
                "--share slurm=3 or --share people=1",
            )
        weights[guest_label.strip()] = weight
    return weights


def is_weight(number: float) -> bool:
    """Whether a number can be a guest's weight."""
    return LEAST_WEIGHT <= number <= MOST_WEIGHT


def guest_name(guest_key: str) -> str:
    """The name of a scheduler, from `guest_key`: its guest's name, or else its account's.

    `people` for the guest that they are.
    """
    account_name, _, scheduler_name = guest_key.partition("/")
    return scheduler_name or account_name or "people"


class Shares:
    """The use of each guest that waits, in device-seconds for a weight of 1.

    weights: by `guest_name`; 1 where none is given. They are read at each update, so they may
    change.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights if weights is not None else {}
        self._use: dict[str, float] = {}
        self._devices: Mapping[str, int] = {}
        self._updated_at = 0.0

    def update(
        self, waiting: Collection[str], device_counts: Mapping[str, int], now: float
    ) -> None:
        """Charge the guests for the time since the last update, then note who waits now.

        device_counts: those that each guest has from now on. now: seconds that never go backwards.
        """
        elapsed_seconds = max(0.0, now - self._updated_at)
        for guest in self._use:
            self._use[guest] += (
                elapsed_seconds * self._devices.get(guest, 0) / self._weight_of_guest(guest)
            )
        self._updated_at, self._devices = now, device_counts
        self._use = {guest: guest_use for guest, guest_use in self._use.items() if guest in waiting}
        least_use = min(self._use.values(), default=0.0)
        for guest in waiting:
            self._use.setdefault(guest, least_use)

    def _weight_of_guest(self, guest: str) -> float:
        return self._weights.get(guest_name(guest), 1.0)

    def use(self, guest: str) -> float:
        """The use of a guest; 0 for one that does not wait."""
        return self._use.get(guest, 0.0)
