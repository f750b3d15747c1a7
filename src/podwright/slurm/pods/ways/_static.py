"""Static partitions: a job is handed those of the size that it asked for.

They were made beforehand and stay. A licence for each size counts them, so a job waits in the
queue until one is free; what is broken, or taken by somebody else, is hidden from Slurm as native
mode hides it. The job holds each by a lease of its user's, and it is reset before it is used.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from podwright.errors import Held, InvalidRequest, NotFound, Unavailable, WrongState
from podwright.slurm.pods.service import Fixed, HookJob, comment, in_short, tried
from podwright.slurm.pods.service._job_calls import Busy
from podwright.slurm.pods.service._job_start import Life
from podwright.slurm.pods.service._pods import parse_licences
from podwright.slurm.pods.service._queue import Listed, listed
from podwright.slurm.pods.service._sync import Counts
from podwright.slurm.pods.ways._base import Way, is_not, is_over
from podwright.slurm.pods.ways._partition_leases import (
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
    """The partitions on the shelf. What they are stands in the server, read at each look."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.counts = Counts(self.slurm, self.hidden)
        self._seen: dict[str, PartitionInfo] = {}
        self._held: dict[str, tuple[Life, LeaseInfo]] = {}
        self._counted: dict[Life, dict[str, int]] = {}  # by Slurm, as its list last said
        self._taking: set[str] = set()
        self._clock = 0
        self._changed: dict[str, int] = {}
        self._closed = False

    async def give(self, job: HookJob) -> str:
        """As many partitions of each size as the job's licences say: all of them, or none."""
        number, restart = job.job, job.restart or 0
        known = await self.listing.job(number)
        await self._refresh()
        mine = self._of(number)
        wanted = self._wanted(job)
        if not wanted:
            raise InvalidRequest("its licences name none of this site's partitions")
        left = Counter(wanted)
        left.subtract(self._seen[name].size for name in mine)
        if min(left.values()) < 0 or any(self._is_anothers(name, job, known) for name in mine):
            await self._give_back(mine)
            left = Counter(wanted)
        chosen = self._choose(left)
        self._taking |= set(chosen)
        try:
            for name in chosen:
                submitted = known.submitted if known else 0
                who = Life(number, restart, 0, job.cluster, submitted)
                lease, self._seen[name] = await acquire(self.server, name, 0, job, who)
                self._held[name] = (who, lease)
                self._touch(name)
        except (Held, NotFound, WrongState) as error:
            await self._give_back(self._of(number))
            await self._refresh()
            raise Busy(str(error)) from None
        finally:
            self._taking -= set(chosen)
        mine = self._of(number)
        names = ",".join(mine)
        leases = [self._held[name][1] for name in mine]
        await comment(self.slurm, job, handed(names, leases, self._seen[mine[0]].num_gcds))
        return f"partition={names}\n"

    async def take(self, job: HookJob) -> None:
        """The job's leases end, and Slurm counts what is free."""
        await self._refresh()
        number, restart = job.job, job.restart or 0
        mine = [name for name in self._of(number) if self._held[name][0].restart <= restart]
        if mine:
            await self._give_back(mine)
            await self.counts.synced()

    async def unproven(self, job: HookJob) -> str:
        """Why a step's job does not hold its partitions for this start; empty: it does."""
        await self._refresh()
        number = job.job
        held = [self._held[name][0] for name in self._of(number)]
        if not held:
            return f"job {number} holds no partition"
        return next((said for who in held if (said := is_not(who, job))), "")

    async def sweep(self) -> None:
        """What jobs that are over hold goes back; what living ones hold goes on."""
        await self._refresh()
        held = dict(self._held)
        jobs = await listed(self.slurm)
        counted = {}
        for name, (who, lease) in held.items():
            if not is_over(who.job, jobs):
                await renew(self.server, lease)
                if (job := jobs[who.job]).restart == who.restart:
                    counted[who] = parse_licences(job.licences)
                continue
            async with self.lock(who.job):
                now = self._held.get(name)
                if now and now[1].id == lease.id:
                    _log.warning("job %d is over and held %s", who.job, name)
                    await self._give_back([name])
                    self.swept += 1
                    await self.freed.tell()
        self._counted = counted
        self.counts.poke()  # renews the reservation, and makes it anew if it is missing
        await self._comments(jobs)

    async def known(self) -> None:
        """One sweep, and Slurm told."""
        await self.sweep()
        await self.counts.tell(self.hidden())

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """The counts as well."""
        return (self.counts.run(), *super().beside())

    async def close(self) -> None:
        """Nothing may start from here on."""
        self._closed = True
        try:
            await self.counts.synced(10.0)
        except Unavailable:
            return

    def state(self) -> dict[str, Any]:
        """Who holds which."""
        return {
            "mode": self.site.mode,
            "partitions": {
                one.name: in_short(self._held[one.name][1].holder)
                if one.name in self._held
                else self._why(one)
                for one in self.site.partitions
            },
            "told": self.counts.told,
            "problem": self.counts.problem,
            "swept": self.swept,
        }

    def hidden(self) -> dict[str, int]:
        """How many of each size Slurm must not give out: those that nobody could use now, and
        those of jobs whose licences an administrator took away."""
        out: dict[str, int] = {}
        held: Counter[tuple[Life, str]] = Counter()
        for one in self.site.partitions:
            away = one.name not in self._held and bool(self._why(one))
            away = away and one.name not in self._taking
            out[one.licence] = out.get(one.licence, 0) + (1 if away or self._closed else 0)
            if one.name in self._held and not self._closed:
                held[self._held[one.name][0], one.licence] += 1
        for (who, licence), count in held.items():
            if who in self._counted:
                out[licence] += max(0, count - self._counted[who].get(licence, 0))
        return out

    # -- inside ------------------------------------------------------------------------------

    def _wanted(self, job: HookJob) -> dict[int, int]:
        licences = parse_licences(job.licences)
        return {
            one.size: licences[one.licence]
            for one in self.site.partitions
            if licences.get(one.licence)
        }

    def _choose(self, wanted: Mapping[int, int]) -> list[str]:
        names = []
        for size, count in wanted.items():
            free = [
                one.name
                for one in self.site.partitions
                if one.size == size and one.name not in self._taking and not self._stands(one)
            ]
            if len(free) < count:
                raise Busy(f"of its {count} partitions of {size} devices {len(free)} are free")
            names += free[:count]
        return names

    def _why(self, one: Fixed) -> str:
        """Why a partition that no job holds cannot be handed over; empty: it can."""
        info = self._seen.get(one.name)
        if info is None:
            return "it is not there"
        if info.size != one.size:
            return f"it has {info.size} devices now"
        if info.ready_state is not ReadyState.ACTIVE:
            return f"it is {info.ready_state.value}"
        strangers = [
            lease.holder or lease.owner
            for lease in info.leases
            if not (lease.parent or holder(lease))
        ]
        return f"{strangers[0]} uses it" if strangers else ""

    def _stands(self, one: Fixed) -> str:
        return (
            in_short(self._held[one.name][1].holder) if one.name in self._held else self._why(one)
        )

    def _of(self, job: int) -> list[str]:
        return sorted(name for name, (who, _) in self._held.items() if who.job == job)

    def _is_anothers(self, name: str, job: HookJob, known: Listed | None) -> bool:
        """Was it given to an earlier life of the job, whose epilog never ran, or to a job of the
        same number that slurmctld has forgotten?"""
        who, lease = self._held[name]
        if known and known.submitted and who.submitted not in (0, known.submitted):
            return True
        return who.restart < (job.restart or 0) or lease.owner != job.user

    def _touch(self, name: str) -> None:
        self._clock += 1
        self._changed[name] = self._clock

    async def _refresh(self) -> None:
        """Take over what the server has, but for what changed while it was asked."""
        before, began = self.hidden(), self._clock
        found = {info.name: info for info in await partitions(self.server)}
        for one in self.site.partitions:
            if self._changed.get(one.name, 0) > began:
                continue
            self._held.pop(one.name, None)
            self._seen.pop(one.name, None)
            info = found.get(one.name)
            if info is None:
                continue
            self._seen[one.name] = info
            for lease in info.leases:
                who = holder(lease)
                if who is not None:
                    self._held[one.name] = (who, lease)
        if self.hidden() != before:
            self.counts.poke()

    async def _give_back(self, names: Sequence[str]) -> None:
        for name in names:
            await release(self.server, self._held[name][1])
            self._held.pop(name, None)
            self._touch(name)

    async def _comments(self, jobs: Mapping[int, Listed]) -> None:
        left = _COMMENTS
        for job in sorted(jobs.values(), key=lambda one: -one.priority):
            waits = job.state == "PENDING" and job.reason in _WAITS and not tried(job)
            text = self.sentence(job) if waits else ""
            if text and job.head + text != job.comment and left:
                left -= 1
                await self.comment_waiting(job, job.head + text, lambda n: bool(self._of(n)))

    def sentence(self, job: Listed) -> str:
        """What a waiting job waits for, in words; empty for what is none of ours."""
        wants = self._wanted(HookJob(job=job.job, licences=job.licences))
        for size, count in wants.items():
            there = [one for one in self.site.partitions if one.size == size]
            free = [one for one in there if not self._stands(one)]
            if len(free) >= count:
                continue
            of = f"{count} of the {len(there)} partitions of {size} devices"
            rest = [f"{one.name}: {said}" for one in there if (said := self._stands(one))]
            return f"waits for {of}; {len(free)} are free; {', '.join(rest)}"
        return "its partitions are free: it waits for nodes or for its turn" if wants else ""
