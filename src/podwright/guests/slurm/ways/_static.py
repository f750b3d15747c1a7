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
from podwright.guests.slurm.service._job_calls import Busy
from podwright.guests.slurm.service._job_start import Life
from podwright.guests.slurm.service._pods import parse_licences
from podwright.guests.slurm.service._queue import Listed, listed
from podwright.guests.slurm.service._queue_sweep import free_but
from podwright.guests.slurm.service._sync import Counts
from podwright.guests.slurm.ways._base import Way, is_not, is_over
from podwright.guests.slurm.ways._partition_leases import (
    acquire,
    handed,
    holder,
    partitions,
    release,
    renew,
)
from podwright.wire import LeaseInfo, PartitionInfo, ReadyState

_log = logging.getLogger("podwright.slurm")
_COMMENTS = 20
_WAITS = ("Licenses", "Reservation", "Resources", "Priority", "None")


class Static(Way):
    """The partitions that can be given out. Their state is in the server, and is read at each
    look.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.counts = Counts(self.slurm, self.hidden)
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
        number, restart = job.job, job.restart or 0
        known = await self.listing.job(number)
        await self._refresh()
        names_held = self._of(number)
        wanted = self._wanted(job)
        if not wanted:
            raise InvalidRequest("its licences name none of this site's partitions")
        left = Counter(wanted)
        left.subtract(self._seen[name].size for name in names_held)
        if min(left.values()) < 0 or any(
            self._is_anothers(name, job, known) for name in names_held
        ):
            await self._give_back(names_held)
            left = Counter(wanted)
        chosen = self._choose_partitions(left)
        self._taking |= set(chosen)
        try:
            for name in chosen:
                submitted = known.submitted if known else 0
                who = Life(number, restart, 0, job.cluster, submitted)
                lease, self._seen[name] = await acquire(self.server, name, 0, job, who)
                self._holdings[name] = (who, lease)
                self._touch(name)
        except (Held, NotFound, WrongState) as error:
            await self._give_back(self._of(number))
            await self._refresh()
            raise Busy(str(error)) from None
        finally:
            self._taking -= set(chosen)
        names_held = self._of(number)
        names = ",".join(names_held)
        leases = [self._holdings[name][1] for name in names_held]
        await comment(self.slurm, job, handed(names, leases, self._seen[names_held[0]].num_gcds))
        return f"partition={names}\n"

    async def take(self, job: HookJob) -> None:
        """End the job's leases, and tell Slurm what is free."""
        await self._refresh()
        number, restart = job.job, job.restart or 0
        names_held = [
            name for name in self._of(number) if self._holdings[name][0].restart <= restart
        ]
        if names_held:
            await self._give_back(names_held)
            await self.counts.synced()

    async def unproven(self, job: HookJob) -> str:
        """Return why a step's job does not hold its partitions for this start, or "" if it does."""
        await self._refresh()
        number = job.job
        lives = [self._holdings[name][0] for name in self._of(number)]
        if not lives:
            return f"job {number} holds no partition"
        return next((problem for who in lives if (problem := is_not(who, job))), "")

    async def sweep(self) -> None:
        """Give back what jobs that are over hold, and renew the leases of living jobs."""
        await self._refresh()
        holdings = dict(self._holdings)
        jobs = await listed(self.slurm)
        counted = {}
        for name, (who, lease) in holdings.items():
            if not is_over(who.job, jobs):
                await renew(self.server, lease)
                if (job := jobs[who.job]).restart == who.restart:
                    counted[who] = parse_licences(job.licences)
                continue
            async with self.lock(who.job):
                now = self._holdings.get(name)
                if now and now[1].id == lease.id:
                    _log.warning("job %d is over and held %s", who.job, name)
                    await self._give_back([name])
                    self.swept += 1
                    await self.freed.notify()
        self._counted = counted
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
            await self.counts.synced(10.0)
        except Unavailable:
            return

    def state(self) -> dict[str, Any]:
        """Return who holds each partition, or why it cannot be given out."""
        return {
            "mode": self.site.mode,
            "partitions": {
                fixed.name: in_short(self._holdings[fixed.name][1].holder)
                if fixed.name in self._holdings
                else self._unusable_reason(fixed)
                for fixed in self.site.partitions
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
        out: dict[str, int] = {}
        counts: Counter[tuple[Life, str]] = Counter()
        for fixed in self.site.partitions:
            is_unusable = fixed.name not in self._holdings and bool(self._unusable_reason(fixed))
            is_unusable = is_unusable and fixed.name not in self._taking
            out[fixed.licence] = out.get(fixed.licence, 0) + (
                1 if is_unusable or self._closed else 0
            )
            if fixed.name in self._holdings and not self._closed:
                counts[self._holdings[fixed.name][0], fixed.licence] += 1
        for (who, licence), count in counts.items():
            if who in self._counted:
                out[licence] += max(0, count - self._counted[who].get(licence, 0))
        return out

    # -- inside ------------------------------------------------------------------------------

    def _wanted(self, job: HookJob) -> dict[int, int]:
        licences = parse_licences(job.licences)
        return {
            fixed.size: licences[fixed.licence]
            for fixed in self.site.partitions
            if licences.get(fixed.licence)
        }

    def _choose_partitions(self, wanted: Mapping[int, int]) -> list[str]:
        names = []
        for size, count in wanted.items():
            free = [
                fixed.name
                for fixed in self.site.partitions
                if fixed.size == size
                and fixed.name not in self._taking
                and not self._unavailable_reason(fixed)
            ]
            if len(free) < count:
                raise Busy(f"of its {count} partitions of {size} devices {len(free)} are free")
            names += free[:count]
        return names

    def _unusable_reason(self, fixed: Fixed) -> str:
        """Return why a partition that no job holds cannot be given out, or "" if it can."""
        info = self._seen.get(fixed.name)
        if info is None:
            return "it is not there"
        if info.size != fixed.size:
            return f"it has {info.size} devices now"
        if info.ready_state is not ReadyState.ACTIVE:
            return f"it is {info.ready_state.value}"
        strangers = [
            lease.holder or lease.owner
            for lease in info.leases
            if not (lease.parent or holder(lease))
        ]
        return f"{strangers[0]} uses it" if strangers else ""

    def _unavailable_reason(self, fixed: Fixed) -> str:
        return (
            in_short(self._holdings[fixed.name][1].holder)
            if fixed.name in self._holdings
            else self._unusable_reason(fixed)
        )

    def _of(self, job: int) -> list[str]:
        return sorted(name for name, (who, _) in self._holdings.items() if who.job == job)

    def _is_anothers(self, name: str, job: HookJob, known: Listed | None) -> bool:
        """Return whether a partition was given to an earlier start of the job, or to another job of
        the same number.

        The epilog of that earlier start never ran. A slurmctld that was killed may have forgotten
        the other job.
        """
        who, lease = self._holdings[name]
        if known and known.submitted and who.submitted not in (0, known.submitted):
            return True
        return who.restart < (job.restart or 0) or lease.owner != job.user

    def _touch(self, name: str) -> None:
        self._clock += 1
        self._changed[name] = self._clock

    async def _refresh(self) -> None:
        """Take over the server's state, except for partitions that changed while it was asked."""
        before, began = self.hidden(), self._clock
        infos = {info.name: info for info in await partitions(self.server)}
        for fixed in self.site.partitions:
            if self._changed.get(fixed.name, 0) > began:
                continue
            self._holdings.pop(fixed.name, None)
            self._seen.pop(fixed.name, None)
            info = infos.get(fixed.name)
            if info is None:
                continue
            self._seen[fixed.name] = info
            for lease in info.leases:
                who = holder(lease)
                if who is not None:
                    self._holdings[fixed.name] = (who, lease)
        if self.hidden() != before:
            self.counts.poke()

    async def _give_back(self, names: Sequence[str]) -> None:
        for name in names:
            await release(self.server, self._holdings[name][1])
            self._holdings.pop(name, None)
            self._touch(name)

    async def _comments(self, jobs: Mapping[int, Listed]) -> None:
        left = _COMMENTS
        for job in sorted(jobs.values(), key=lambda row: -row.priority):
            waits = job.state == "PENDING" and job.reason in _WAITS and not tried(job)
            text = self.sentence(job) if waits else ""
            if text and job.head + text != job.comment and left:
                left -= 1
                await self.comment_waiting(job, job.head + text, lambda n: bool(self._of(n)))

    def sentence(self, job: Listed) -> str:
        """Return what a waiting job waits for, in words, or "" for a job that is none of ours."""
        request = self._wanted(HookJob(job=job.job, licences=job.licences))
        for size, count in request.items():
            partitions = [fixed for fixed in self.site.partitions if fixed.size == size]
            free = [fixed for fixed in partitions if not self._unavailable_reason(fixed)]
            if len(free) >= count:
                continue
            partition_count = f"{count} of the {len(partitions)} partitions of {size} devices"
            rest = [
                f"{fixed.name}: {problem}"
                for fixed in partitions
                if (problem := self._unavailable_reason(fixed))
            ]
            return f"waits for {partition_count}; {len(free)} are free; {', '.join(rest)}"
        return f"its partitions are free: {free_but(job.reason)}" if request else ""
