"""Whose turn it is among those that share a pod: schedulers, and the people of the server's queue.

Each is a guest. Start-time fair queueing decides, charged as devices are used, because nobody knows
how long a job will run. While anybody waits, the device-seconds that a guest holds or has kept,
divided by its weight, are added to its virtual time. That time only grows. The queue has a virtual
time of its own: the least one of those that wait. A guest that begins to wait continues at the
larger of its own and the queue's. So nobody saves up turns by not using the pod, and nobody sheds
what it has had by leaving the queue for a moment.

The waiting guest with the least virtual time is next. A job that is due keeps the time that its
guest had then, its tag: what its guest's running jobs use later counts for the guest's next job
(docs/design/common-queue.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from podwright.errors import InvalidRequest

#: The guest that all waiters of the server's own queue are.
PEOPLE: Final = ""
LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 1000.0


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
    """The virtual time of each guest, in device-seconds for a weight of 1.

    weights: by `guest_name`; 1 where none is given. They are read at each update, so they may
    change.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = weights if weights is not None else {}
        self._times: dict[str, float] = {}
        self._queue_time = 0.0
        self._devices: Mapping[str, int] = {}
        self._updated_at = 0.0

    def update(
        self, waiting: Mapping[str, float | None], device_counts: Mapping[str, int], now: float
    ) -> None:
        """Charge the guests for the time since the last update, then note who waits now.

        waiting: the least tag of each guest's jobs, or None where none is due. device_counts: those
        that each guest has from now on; empty: nothing is charged. now: seconds that never go
        backwards.
        """
        elapsed_seconds = max(0.0, now - self._updated_at)
        for guest, count in self._devices.items():
            charge = elapsed_seconds * count / self._weight_of_guest(guest)
            self._times[guest] = self.time(guest) + charge
        self._updated_at, self._devices = now, device_counts
        for guest in waiting:
            self._times[guest] = self.time(guest)
        turns = [self.time(guest) if tag is None else tag for guest, tag in waiting.items()]
        self._queue_time = max(self._queue_time, min(turns, default=0.0))
        self._times = {
            guest: virtual_time
            for guest, virtual_time in self._times.items()
            if guest in waiting or virtual_time > self._queue_time
        }

    def _weight_of_guest(self, guest: str) -> float:
        return self._weights.get(guest_name(guest), 1.0)

    def time(self, guest: str) -> float:
        """The virtual time of a guest. One that has none starts at the queue's."""
        return max(self._times.get(guest, 0.0), self._queue_time)
