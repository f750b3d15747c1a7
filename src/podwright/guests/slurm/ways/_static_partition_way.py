"""Static partitions: a job gets existing partitions of the size that it asked for.

They are made beforehand and stay. A licence for each size counts them, so a job waits in the queue
until one is free. Partitions that are broken, or that somebody else uses, are hidden from Slurm in
the same way as in native mode. The job holds each partition by a lease that belongs to its user,
and the partition is reset before it is used.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from podwright.errors import Held, InvalidRequest, NotFound, Unavailable, WrongState
from podwright.guests.slurm.service import Fixed, HookJob, comment, in_short, tried
from podwright.guests.slurm.service._hook_calls import Busy
from podwright.guests.slurm.service._job_start_text import Life
from podwright.guests.slurm.service._licence_counts import LicenceCounts
from podwright.guests.slurm.service._missed_hook_sweep import other_wait_text
from podwright.guests.slurm.service._pods_and_licences import parse_licences
from podwright.guests.slurm.service._squeue_jobs import Listed, listed
from podwright.guests.slurm.ways._base_way import SchedulingWay, is_over, wrong_start_reason
from podwright.guests.slurm.ways._partition_leases import (
    acquire,
    holder,
    lease_comment,
    partitions,
    release,
    renew,
)
from podwright.wire import LeaseInfo, PartitionInfo, ReadyState

_log = logging.getLogger("podwright.slurm")
_COMMENTS_PER_SWEEP = 20
_LICENCE_WAIT_REASONS = ("Licenses", "Reservation", "Resources", "Priority", "None")


class Static(SchedulingWay):
    """The partitions that can be given out. Their state is in the server, and is read at each
    look.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.counts = LicenceCounts(self.slurm, self.hidden)
        self._seen: dict[str, PartitionInfo] = {}
        self._holdings: dict[str, tuple[Life, LeaseInfo]] = {}
        self._counted: dict[Life, dict[str, int]] = {}  # what Slurm's last list showed
        self._taking: set[str] = set()
        self._clock = 0
        self._changed: dict[str, int] = {}
        self._closed = False

    async def give(self, job: HookJob) -> str:
        """Acquire as many partitions of each size as the job's licences say: all of them, or
        none.
        """
        job_number, restart_count = job.job, job.restart or 0
        listed_job = await self.listing.job(job_number)
        await self._refresh_holdings()
        names_held = self._partitions_of_job(job_number)
        wanted_counts = self._wanted_partition_counts(job)
        if not wanted_counts:
            raise InvalidRequest("its licences name none of this site's partitions")
        missing_counts = Counter(wanted_counts)
        missing_counts.subtract(self._seen[name].size for name in names_held)
        if min(missing_counts.values()) < 0 or any(
            self._is_partition_of_another(name, job, listed_job) for name in names_held
        ):
            await self._release_partitions(names_held)
            missing_counts = Counter(wanted_counts)
        chosen_names = self._choose_partitions(missing_counts)
        self._taking |= set(chosen_names)
        try:
            for partition_name in chosen_names:
                submit_time = listed_job.submitted if listed_job else 0
                job_start = Life(job_number, restart_count, 0, job.cluster, submit_time)
                lease, self._seen[partition_name] = await acquire(
                    self.server, partition_name, 0, job, job_start
                )
                self._holdings[partition_name] = (job_start, lease)
                self._note_partition_change(partition_name)
        except (Held, NotFound, WrongState) as error:
            await self._release_partitions(self._partitions_of_job(job_number))
            await self._refresh_holdings()
            raise Busy(str(error)) from None
        finally:
            self._taking -= set(chosen_names)
        names_held = self._partitions_of_job(job_number)
        joined_names = ",".join(names_held)
        leases = [self._holdings[name][1] for name in names_held]
        await comment(
            self.slurm, job, lease_comment(joined_names, leases, self._seen[names_held[0]].num_gcds)
        )
        return f"partition={joined_names}\n"

    async def take(self, job: HookJob) -> None:
        """End the job's leases, and tell Slurm what is free."""
        await self._refresh_holdings()
        number, count = job.job, job.restart or 0
        names_held = [
            name
            for name in self._partitions_of_job(number)
            if self._holdings[name][0].restart <= count
        ]
        if names_held:
            await self._release_partitions(names_held)
            await self.counts.wait_until_synced()

    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job does not hold its partitions for this start, or "" if it does."""
        await self._refresh_holdings()
        job_number = job.job
        job_starts = [self._holdings[name][0] for name in self._partitions_of_job(job_number)]
        if not job_starts:
            return f"job {job_number} holds no partition"
        return next(
            (
                problem
                for job_start in job_starts
                if (problem := wrong_start_reason(job_start, job))
            ),
            "",
        )

    async def sweep(self) -> None:
        """Give back what jobs that are over hold, and renew the leases of living jobs."""
        await self._refresh_holdings()
        holdings = dict(self._holdings)
        jobs = await listed(self.slurm)
        counted_licences = {}
        for partition_name, (job_start, lease) in holdings.items():
            if not is_over(job_start.job, jobs):
                await renew(self.server, lease)
                if (listed_job := jobs[job_start.job]).restart == job_start.restart:
                    counted_licences[job_start] = parse_licences(listed_job.licences)
                continue
            async with self.lock(job_start.job):
                present_holding = self._holdings.get(partition_name)
                if present_holding and present_holding[1].id == lease.id:
                    _log.warning("job %d is over and held %s", job_start.job, partition_name)
                    await self._release_partitions([partition_name])
                    self.swept += 1
                    await self.freed.notify()
        self._counted = counted_licences
        self.counts.poke()  # renews the reservation, and makes it if it is missing
        await self._comments(jobs)

    async def known(self) -> None:
        """Sweep once, and tell Slurm the counts."""
        await self.sweep()
        await self.counts.update(self.hidden())

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return the task that keeps the counts, and the sweep."""
        return (self.counts.run(), *super().tasks())

    async def close(self) -> None:
        """Tell Slurm that nothing may start from here on."""
        self._closed = True
        try:
            await self.counts.wait_until_synced(10.0)
        except Unavailable:
            return

    def state(self) -> dict[str, Any]:
        """Return who holds each partition, or why it cannot be given out."""
        return {
            "mode": self.site.mode,
            "partitions": {
                partition.name: in_short(self._holdings[partition.name][1].holder)
                if partition.name in self._holdings
                else self._unusable_reason(partition)
                for partition in self.site.partitions
            },
            "told": self.counts.last_hidden,
            "problem": self.counts.problem,
            "swept": self.swept,
        }

    def hidden(self) -> dict[str, int]:
        """Return how many of each size Slurm must not give out.

        These are the partitions that nobody could use now, and those of jobs whose licences an
        administrator took away.
        """
        hidden_counts: dict[str, int] = {}
        held_counts: Counter[tuple[Life, str]] = Counter()
        for fixed_partition in self.site.partitions:
            is_unusable = fixed_partition.name not in self._holdings and bool(
                self._unusable_reason(fixed_partition)
            )
            is_unusable = is_unusable and fixed_partition.name not in self._taking
            hidden_counts[fixed_partition.licence] = hidden_counts.get(
                fixed_partition.licence, 0
            ) + (1 if is_unusable or self._closed else 0)
            if fixed_partition.name in self._holdings and not self._closed:
                held_counts[self._holdings[fixed_partition.name][0], fixed_partition.licence] += 1
        for (job_start, licence), count in held_counts.items():
            if job_start in self._counted:
                hidden_counts[licence] += max(0, count - self._counted[job_start].get(licence, 0))
        return hidden_counts

    # -- inside ------------------------------------------------------------------------------

    def _wanted_partition_counts(self, job: HookJob) -> dict[int, int]:
        licence_counts = parse_licences(job.licences)
        return {
            partition.size: licence_counts[partition.licence]
            for partition in self.site.partitions
            if licence_counts.get(partition.licence)
        }

    def _choose_partitions(self, wanted_counts: Mapping[int, int]) -> list[str]:
        chosen_names = []
        for device_count, partition_count in wanted_counts.items():
            free_names = [
                partition.name
                for partition in self.site.partitions
                if partition.size == device_count
                and partition.name not in self._taking
                and not self._unavailable_reason(partition)
            ]
            if len(free_names) < partition_count:
                raise Busy(
                    f"of its {partition_count} partitions of {device_count} devices "
                    f"{len(free_names)} are free"
                )
            chosen_names += free_names[:partition_count]
        return chosen_names

    def _unusable_reason(self, fixed_partition: Fixed) -> str:
        """Return why a partition that no job holds cannot be given out, or "" if it can."""
        info = self._seen.get(fixed_partition.name)
        if info is None:
            return "it is not there"
        if info.size != fixed_partition.size:
            return f"it has {info.size} devices now"
        if info.ready_state is not ReadyState.ACTIVE:
            return f"it is {info.ready_state.value}"
        stranger_holders = [
            lease.holder or lease.owner
            for lease in info.leases
            if not (lease.parent or holder(lease))
        ]
        return f"{stranger_holders[0]} uses it" if stranger_holders else ""

    def _unavailable_reason(self, fixed_partition: Fixed) -> str:
        return (
            in_short(self._holdings[fixed_partition.name][1].holder)
            if fixed_partition.name in self._holdings
            else self._unusable_reason(fixed_partition)
        )

    def _partitions_of_job(self, job_number: int) -> list[str]:
        return sorted(
            name for name, (job_start, _) in self._holdings.items() if job_start.job == job_number
        )

    def _is_partition_of_another(
        self, partition_name: str, job: HookJob, listed_job: Listed | None
    ) -> bool:
        """Return whether a partition was given to an earlier start of the job, or to another job of
        the same number.

        The epilog of that earlier start never ran. A slurmctld that was killed may have forgotten
        the other job.
        """
        held_start, lease = self._holdings[partition_name]
        if (
            listed_job
            and listed_job.submitted
            and held_start.submitted not in (0, listed_job.submitted)
        ):
            return True
        return held_start.restart < (job.restart or 0) or lease.owner != job.user

    def _note_partition_change(self, partition_name: str) -> None:
        self._clock += 1
        self._changed[partition_name] = self._clock

    async def _refresh_holdings(self) -> None:
        """Take over the server's state, except for partitions that changed while it was asked."""
        hidden_before, start_tick = self.hidden(), self._clock
        infos_by_name = {info.name: info for info in await partitions(self.server)}
        for fixed_partition in self.site.partitions:
            if self._changed.get(fixed_partition.name, 0) > start_tick:
                continue
            self._holdings.pop(fixed_partition.name, None)
            self._seen.pop(fixed_partition.name, None)
            partition_info = infos_by_name.get(fixed_partition.name)
            if partition_info is None:
                continue
            self._seen[fixed_partition.name] = partition_info
            for lease in partition_info.leases:
                job_start = holder(lease)
                if job_start is not None:
                    self._holdings[fixed_partition.name] = (job_start, lease)
        if self.hidden() != hidden_before:
            self.counts.poke()

    async def _release_partitions(self, partition_names: Sequence[str]) -> None:
        for name in partition_names:
            await release(self.server, self._holdings[name][1])
            self._holdings.pop(name, None)
            self._note_partition_change(name)

    async def _comments(self, jobs: Mapping[int, Listed]) -> None:
        comments_left = _COMMENTS_PER_SWEEP
        for job in sorted(jobs.values(), key=lambda listed_job: -listed_job.priority):
            is_waiting = (
                job.state == "PENDING" and job.reason in _LICENCE_WAIT_REASONS and not tried(job)
            )
            text = self.sentence(job) if is_waiting else ""
            if text and job.head + text != job.comment and comments_left:
                comments_left -= 1
                await self.comment_waiting(
                    job,
                    job.head + text,
                    lambda job_number: bool(self._partitions_of_job(job_number)),
                )

    def sentence(self, job: Listed) -> str:
        """Return what a waiting job waits for, in words, or "" for a job that is none of ours."""
        requested_counts = self._wanted_partition_counts(
            HookJob(job=job.job, licences=job.licences)
        )
        for device_count, requested_count in requested_counts.items():
            sized_partitions = [
                partition for partition in self.site.partitions if partition.size == device_count
            ]
            free_partitions = [
                partition
                for partition in sized_partitions
                if not self._unavailable_reason(partition)
            ]
            if len(free_partitions) >= requested_count:
                continue
            count_text = (
                f"{requested_count} of the {len(sized_partitions)} partitions of {device_count} "
                "devices"
            )
            busy_texts = [
                f"{partition.name}: {reason}"
                for partition in sized_partitions
                if (reason := self._unavailable_reason(partition))
            ]
            return (
                f"waits for {count_text}; {len(free_partitions)} are free; {', '.join(busy_texts)}"
            )
        return f"its partitions are free: {other_wait_text(job.reason)}" if requested_counts else ""
