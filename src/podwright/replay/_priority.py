"""The order of the queue: age, size and fair share, weighted as by the multifactor plugin.

Source: Slurm's Multifactor Priority page, and Fair Tree's for the rank of users. The job with the
lowest key is first. Without weights, the key is the time at which the job could first have begun.
"""

from __future__ import annotations

from podwright.replay._slurm_model import SlurmModel

Key = tuple[float, int]


class Priorities:
    """The keys of jobs, and the decayed usage of users. size: devices of the site."""

    def __init__(self, slurm_model: SlurmModel, size: int, user_count: int) -> None:
        self._slurm, self._size = slurm_model, max(1, size)
        self._used = [0.0] * user_count
        self._fair_share_factors = [1.0] * user_count
        self._running = [0.0] * user_count  # the devices that each user has now
        self._since = 0.0
        self._ranked_at = -1.0

    def key(self, job: int, eligible: float, devices: int, user: int, now: float) -> Key:
        """Return the sort key of a job in the queue."""
        slurm_model = self._slurm
        if not slurm_model.ranks:
            return eligible, job
        size_factor = devices / self._size
        if slurm_model.favor_small:
            size_factor = 1 - size_factor
        age_factor = (
            min(1.0, (now - eligible) / slurm_model.max_age) if slurm_model.max_age > 0 else 1.0
        )
        priority = (
            slurm_model.weight_age * age_factor
            + slurm_model.weight_size * size_factor
            + slurm_model.weight_fairshare * self._fair_share_factors[user]
        )
        return -priority, job

    def is_stale(self, now: float) -> bool:
        """Return whether the keys must be computed anew (PriorityCalcPeriod)."""
        return self._slurm.ranks and now - self._ranked_at >= self._slurm.calc_period

    def job_began(self, user: int, devices: int, now: float) -> None:
        """Note that a job of this user has begun to use these devices."""
        if self._slurm.weight_fairshare:
            self._decay_usage(now)
            self._running[user] += devices

    def job_ended(self, user: int, devices: int, now: float) -> None:
        """Note that the job has ended."""
        if self._slurm.weight_fairshare:
            self._decay_usage(now)
            self._running[user] -= devices

    def rank(self, now: float) -> None:
        """Compute the factors of fair share."""
        self._ranked_at = now
        if not self._slurm.weight_fairshare:
            return
        self._decay_usage(now)
        users_by_usage = sorted(range(len(self._used)), key=lambda user: (self._used[user], user))
        for position, user in enumerate(users_by_usage):
            is_tie = position and self._used[user] == self._used[users_by_usage[position - 1]]
            self._fair_share_factors[user] = (
                self._fair_share_factors[users_by_usage[position - 1]]
                if is_tie
                else 1 - position / len(users_by_usage)
            )

    def _decay_usage(self, now: float) -> None:
        elapsed_s = now - self._since
        if elapsed_s <= 0:
            return
        half_life_s = self._slurm.half_life
        factor = 0.5 ** (elapsed_s / half_life_s) if half_life_s > 0 else 1.0
        for user, devices in enumerate(self._running):
            if devices or self._used[user]:
                self._used[user] = self._used[user] * factor + devices * elapsed_s
        self._since = now
