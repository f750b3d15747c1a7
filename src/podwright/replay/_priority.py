"""The order of the queue: age, size and fair share, weighted as by the multifactor plugin.

Source: Slurm's Multifactor Priority page, and Fair Tree's for the rank of users. The job with the
lowest key is first. Without weights, the key is the time at which the job could first have begun.
"""

from __future__ import annotations

from podwright.replay._slurm_settings import SlurmModel

Key = tuple[float, int]


class Priorities:
    """The keys of jobs, and the decayed usage of users. size: devices of the site."""

    def __init__(self, slurm: SlurmModel, size: int, users: int) -> None:
        self._slurm, self._size = slurm, max(1, size)
        self._used = [0.0] * users
        self._factor = [1.0] * users
        self._running = [0.0] * users  # the devices that each user has now
        self._since = 0.0
        self._ranked = -1.0

    def key(self, job: int, eligible: float, devices: int, user: int, now: float) -> Key:
        """Return the sort key of a job in the queue."""
        slurm = self._slurm
        if not slurm.ranks:
            return eligible, job
        size = devices / self._size
        if slurm.favor_small:
            size = 1 - size
        age = min(1.0, (now - eligible) / slurm.max_age) if slurm.max_age > 0 else 1.0
        worth = (
            slurm.weight_age * age
            + slurm.weight_size * size
            + slurm.weight_fairshare * self._factor[user]
        )
        return -worth, job

    def is_stale(self, now: float) -> bool:
        """Return whether the keys must be computed anew (PriorityCalcPeriod)."""
        return self._slurm.ranks and now - self._ranked >= self._slurm.calc_period

    def job_began(self, user: int, devices: int, now: float) -> None:
        """Note that a job of this user has begun to use these devices."""
        if self._slurm.weight_fairshare:
            self._decay(now)
            self._running[user] += devices

    def job_ended(self, user: int, devices: int, now: float) -> None:
        """Note that the job has ended."""
        if self._slurm.weight_fairshare:
            self._decay(now)
            self._running[user] -= devices

    def rank(self, now: float) -> None:
        """Compute the factors of fair share."""
        self._ranked = now
        if not self._slurm.weight_fairshare:
            return
        self._decay(now)
        order = sorted(range(len(self._used)), key=lambda user: (self._used[user], user))
        for place, user in enumerate(order):
            same = place and self._used[user] == self._used[order[place - 1]]
            self._factor[user] = self._factor[order[place - 1]] if same else 1 - place / len(order)

    def _decay(self, now: float) -> None:
        passed = now - self._since
        if passed <= 0:
            return
        half = self._slurm.half_life
        factor = 0.5 ** (passed / half) if half > 0 else 1.0
        for user, devices in enumerate(self._running):
            if devices or self._used[user]:
                self._used[user] = self._used[user] * factor + devices * passed
        self._since = now
