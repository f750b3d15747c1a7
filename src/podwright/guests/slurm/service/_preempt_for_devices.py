"""Ends running jobs for an urgent one that waits for devices, as Slurm's configuration asks for it.

Slurm itself preempts for nodes. It does so for GRES as well, but devices are licences to it, and by
licences it cannot tell which jobs' devices join to a block. So where PreemptType and PreemptMode
ask for preemption, this module does it for devices, by the same rules (`_preemption_victims`):

1. The urgent job gets the place of the first job in the queue, and its victims count as ending
   next. So the room that is made for the first job (`_queue_large_job_room`) is their block.
2. Once exactly this block is kept, and every job that Slurm had started has its devices, the
   victims are looked at once more. If one of them is exempt by now, nobody is asked.
3. Each victim is warned as Slurm warns it, and ends after its GraceTime: it is requeued, or
   cancelled where PreemptMode says so or Slurm cannot requeue it.
4. The block comes free by their epilogs. Slurm starts the urgent job by its own priority.

Only jobs in Slurm's own book are looked at, so no job of another guest ends. Nothing is durable: a
service that starts anew plans anew, and warns anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from podwright.errors import FieldNotKnown, Unavailable
from podwright.guests.shared import Waits
from podwright.guests.slurm.service._end_deviceless_jobs import REQUEUE_REFUSALS
from podwright.guests.slurm.service._pod_holdings import PodBook
from podwright.guests.slurm.service._preemption_victims import (
    Candidate,
    JobRank,
    PreemptRules,
    Victims,
    choose_victims,
    ending_mode,
    grace_s,
    order_of_urgency,
)
from podwright.guests.slurm.service._squeue_jobs import Listed
from podwright.slurm.reader import (
    SHOW_CONFIG,
    SHOW_PARTITIONS,
    JobRecord,
    SlurmConfig,
    read_jobs,
    read_partitions,
)
from podwright.slurm.site.time_and_memory import time_seconds

if TYPE_CHECKING:
    from podwright.guests.slurm.service._native_service import Service

_log = logging.getLogger("podwright.slurm")
_SHOW_JOBS: Final = ("scontrol", "--oneliner", "show", "job")
_SHOW_QOS: Final = ("sacctmgr", "-nP", "show", "qos", "format=Name,Preempt,PreemptMode,GraceTime")
#: The first release that knows PreemptParameters=reclaim_licenses.
_RECLAIMS_SINCE: Final = (23, 2)
#: Seconds for which it is believed that Slurm preempts nothing.
_OFF_FOR_S: Final = 60.0
#: Seconds before jobs are ended a second time for the same job. Where it does not take the block,
#: it lacks something else.
_SECOND_PLAN_AFTER_S: Final = 300.0


@dataclass(slots=True, eq=False)
class _Plan:
    """Whom an urgent job waits for. warned_at: when the victims were warned, by the service's
    clock; None: they were not. ended: the victims that Slurm was asked to end, with the restart
    count that each had; -1: it has ended by itself. forgotten: those of them that Slurm believes to
    run all the same.
    """

    job: int
    book: PodBook
    victims: Victims
    warned_at: float | None = None
    ended: dict[int, int] = field(default_factory=dict)
    forgotten: dict[int, int] = field(default_factory=dict)


class DevicePreemption:
    """Makes at most one plan for each pod. wall: returns seconds since 1970."""

    def __init__(self, service: Service, wall: Callable[[], float] = time.time) -> None:
        self._service, self._wall = service, wall
        self._plans: dict[str, _Plan] = {}
        self._off_until = float("-inf")
        #: Jobs that are not named as waiting for one sweep, so that the place kept for them is
        #: given up: their victims are elsewhere.
        self.withheld: frozenset[int] = frozenset()
        self._rest: dict[int, float] = {}  # urgent job -> no second plan before
        self._names_jobs = False
        self._problem = ""

    # -- what the room is told ---------------------------------------------------------------

    @property
    def urgent_jobs(self) -> frozenset[int]:
        """The jobs for which others end."""
        return frozenset(plan.job for plan in self._plans.values())

    def end_times(self, end_times: Mapping[int, str]) -> dict[int, str]:
        """Return the ends of jobs, as text that sorts like `Listed.end`, with the victims' first.

        Jobs beside them end later. Otherwise a block that is likely to come free soon would be kept
        in place of the victims' block.
        """
        ends, sweep_s = dict(end_times), self._service.site.sweep_s
        for plan in self._plans.values():
            victims = {victim.job for victim in plan.victims.jobs}
            first_end = self._wall() + max(victim.grace_s for victim in plan.victims.jobs)
            first_text, later_text = (
                datetime.fromtimestamp(first_end + sweeps * sweep_s).isoformat(timespec="seconds")
                for sweeps in (2, 4)
            )
            for job in plan.book.holdings:
                ends[job] = first_text if job in victims else max(ends.get(job, ""), later_text)
        return ends

    def words(self, job_number: int) -> str:
        """Return whom an urgent job waits for, or "". Jobs are named where Slurm shows everybody
        all jobs.
        """
        for plan in self._plans.values():
            if plan.job == job_number:
                numbers = sorted(victim.job for victim in plan.victims.jobs)
                count_text = "1 job" if len(numbers) == 1 else f"{len(numbers)} jobs"
                names_text = f" ({', '.join(map(str, numbers))})" if self._names_jobs else ""
                verb = "ends" if len(numbers) == 1 else "end"
                return f"{count_text} of lower rank{names_text} {verb} for it"
        return ""

    # -- plans -------------------------------------------------------------------------------

    async def update(
        self,
        jobs: Mapping[int, Listed],
        waiting: Callable[[Mapping[int, Listed]], Iterable[Waits]],
    ) -> None:
        """Plan for the most urgent job of each pod, and drop plans that are over. Raises nothing:
        what Slurm does not show means that nothing is preempted.

        waiting: returns the jobs that wait for devices.
        """
        self.withheld = frozenset()
        clock_now = self._service.clock()
        self._rest = {job: until for job, until in self._rest.items() if until > clock_now}
        waits = {
            wait.job: wait
            for wait in waiting(jobs)
            if not wait.alone and jobs[wait.job].state == "PENDING"
        }
        for pod_type, plan in list(self._plans.items()):
            # A slurmctld that was killed has forgotten what it was asked last. It counts such a job
            # until its nodes say that it is gone, which takes minutes.
            plan.forgotten = {
                job: restart
                for job, restart in plan.ended.items()
                if job in jobs and (jobs[job].state, jobs[job].restart) == ("RUNNING", restart)
            }
            for job in plan.forgotten:
                del plan.ended[job]
            lost_devices = plan.victims.bits & plan.book.unusable & ~plan.book.resetting
            if plan.job not in waits or plan.warned_at is None or lost_devices:
                del self._plans[pod_type]  # one that nobody acted on is made anew
            elif not plan.forgotten and not plan.victims.bits & ~plan.book.unheld():
                del self._plans[pod_type]  # its block is free: Slurm starts it
        if not waits or self._service.clock() < self._off_until:
            return
        try:
            await self._plan(waits)
        except (FieldNotKnown, Unavailable) as error:
            if str(error) != self._problem:
                _log.warning("nothing is preempted for devices: %s", error)
            self._problem = str(error)
            return
        self._problem = ""

    async def _plan(self, waits: Mapping[int, Waits]) -> None:
        rules = await self._rules()
        if rules is None:
            self._off_until = self._service.clock() + _OFF_FOR_S
            return
        ranks = await self._ranks()
        for pod_type, book in self._service.books.items():
            if pod_type in self._plans or book.emptied or book.moves:
                continue
            urgent_ranks = [
                ranks[job]
                for job, wait in waits.items()
                if job in ranks and job not in self._rest and list(wait.orders) == [pod_type]
            ]
            for urgent in sorted(urgent_ranks, key=lambda rank: order_of_urgency(rules, rank)):
                (order,) = waits[urgent.job].orders[pod_type]
                victims = self._victims(book, order, urgent, rules, ranks)
                if victims is None:
                    continue
                if victims.jobs and book.closed_for == urgent.job and book.closed != victims.bits:
                    self.withheld |= {urgent.job}
                elif victims.jobs:
                    self._plans[pod_type] = _Plan(urgent.job, book, victims)
                break  # the most urgent one that can have a block has it before any other

    def _victims(
        self,
        book: PodBook,
        order: int,
        urgent: JobRank,
        rules: PreemptRules,
        ranks: Mapping[int, JobRank],
    ) -> Victims | None:
        candidates = []
        for holding in book.holdings.values():
            rank = ranks.get(holding.job)
            if rank is None or holding.leader or not holding.created:
                continue
            if mode := ending_mode(rules, urgent, rank, self._wall()):
                candidates.append(
                    Candidate(holding.job, holding.bits, holding.began, mode, grace_s(rules, rank))
                )
        if rules.slurm_ends_one and any(one.bits.bit_count() >> order for one in candidates):
            return None
        return choose_victims(book.blocks.capacity, book.unheld(), candidates, order)

    # -- effects -----------------------------------------------------------------------------

    async def act(self) -> None:
        """End the victims whose block is kept for the urgent job. Raises PodwrightError."""
        for plan in list(self._plans.values()):
            is_kept = (plan.book.closed_for, plan.book.closed) == (plan.job, plan.victims.bits)
            if not (is_kept or plan.forgotten):
                continue  # not kept yet, or no longer
            if plan.warned_at is None and not plan.book.unsettled:
                if not await self._is_still_right(plan):
                    continue
                await self._warn(plan)
            if plan.warned_at is not None:
                await self._end(plan, self._service.clock() - plan.warned_at)

    async def _is_still_right(self, plan: _Plan) -> bool:
        """Return whether Slurm still lets the urgent job preempt each victim, and it needs them."""
        rules, ranks = await self._rules(), await self._ranks()
        urgent = ranks.get(plan.job)
        if rules is None or urgent is None or urgent.eligible_at is not None:
            return False
        order = plan.victims.bits.bit_count().bit_length() - 1
        return self._victims(plan.book, order, urgent, rules, ranks) == plan.victims

    async def _warn(self, plan: _Plan) -> None:
        plan.warned_at = self._service.clock()
        self._rest[plan.job] = plan.warned_at + _SECOND_PLAN_AFTER_S
        numbers = ", ".join(str(victim.job) for victim in plan.victims.jobs)
        _log.info(
            "job %d preempts %s for %d devices of %s",
            *(plan.job, numbers, plan.victims.bits.bit_count(), plan.book.pod.type),
        )
        for victim in plan.victims.jobs:
            if victim.grace_s:
                for name in ("CONT", "TERM"):
                    await self._service.slurm.run("scancel", f"--signal={name}", str(victim.job))

    async def _end(self, plan: _Plan, warned_for_s: float) -> None:
        run = self._service.slurm.run
        for victim in plan.victims.jobs:
            holding = plan.book.holdings.get(victim.job)
            if victim.job in plan.ended or warned_for_s < victim.grace_s:
                continue
            restart = plan.forgotten.get(victim.job)
            if restart is None:
                if holding is None or (holding.bits, holding.began) != (victim.bits, victim.began):
                    plan.ended[victim.job] = -1
                    continue
                restart = holding.restart
            cancelled = victim.mode == "CANCEL"
            if not cancelled:
                reply = await run("scontrol", "requeue", str(victim.job))
                cancelled = bool(reply.code) and any(
                    refusal in reply.text for refusal in REQUEUE_REFUSALS
                )
                if reply.code and not cancelled:
                    raise Unavailable(f"job {victim.job} is not requeued yet: {reply.text[:200]}")
            if cancelled:
                reply = await run("scancel", str(victim.job))
                if reply.code:
                    raise Unavailable(f"job {victim.job} is not cancelled yet: {reply.text[:200]}")
            plan.ended[victim.job] = restart
            plan.forgotten.pop(victim.job, None)
            self._service.figures.preempted += 1

    # -- what Slurm says ---------------------------------------------------------------------

    async def _rules(self) -> PreemptRules | None:
        """Return what Slurm's configuration says, or None where it asks for no preemption. Raises
        FieldNotKnown, Unavailable.
        """
        config = SlurmConfig(await self._output(*SHOW_CONFIG))
        self._names_jobs = "jobs" not in config.value("PrivateData")
        preempt_type = config.value("PreemptType")
        cluster_mode = frozenset(config.text("PreemptMode").upper().split(","))
        if preempt_type not in ("preempt/partition_prio", "preempt/qos") or "OFF" in cluster_mode:
            return None
        # Slurm 22.05 shows this setting only where it is set.
        parameters = dict(
            parameter.strip().partition("=")[::2]
            for parameter in config.optional("PreemptParameters").split(",")
        )
        exempt_text = parameters.get("min_exempt_priority", "")
        exempt_priority = int(exempt_text) if exempt_text.isdecimal() else None
        slurm_ends_one = "reclaim_licenses" in parameters and config.version >= _RECLAIMS_SINCE
        partitions = read_partitions(await self._output(*SHOW_PARTITIONS))
        tiers = {partition.name: partition.priority for partition in partitions}
        if preempt_type == "preempt/partition_prio":
            return PreemptRules(
                by_qos=False,
                cluster_mode=cluster_mode,
                modes={partition.name: partition.preempt_mode for partition in partitions},
                grace_s={partition.name: partition.grace_s for partition in partitions},
                tiers=tiers,
                exempt_priority=exempt_priority,
                slurm_ends_one=slurm_ends_one,
            )
        rows = [line.split("|") for line in (await self._output(*_SHOW_QOS)).splitlines()]
        if any(len(row) < 4 for row in rows):
            raise FieldNotKnown.of("Preempt", "sacctmgr show qos")
        return PreemptRules(
            by_qos=True,
            cluster_mode=cluster_mode,
            modes={row[0]: frozenset(row[2].upper().split(",")) for row in rows},
            grace_s={row[0]: int(time_seconds(row[3] or "0")) for row in rows},
            tiers=tiers,
            slurm_ends_one=slurm_ends_one,
            preemptable={row[0]: frozenset(row[1].split(",")) - {""} for row in rows},
            exempt_priority=exempt_priority,
        )

    async def _ranks(self) -> dict[int, JobRank]:
        """Return the jobs that wait or run, by number. A job of which Slurm does not show what
        decides is left out, so it neither preempts nor is preempted.
        """
        ranks = {}
        for record in read_jobs(await self._output(*_SHOW_JOBS)):
            try:
                if record.state in ("PENDING", "RUNNING") and not record.het_job:
                    ranks[record.number] = _rank(record)
            except (FieldNotKnown, ValueError):
                continue
        return ranks

    async def _output(self, *command: str) -> str:
        reply = await self._service.slurm.run(*command)
        if reply.code:
            raise Unavailable(f"{' '.join(command[:4])} failed: {reply.text[:200]}")
        return reply.out


def _rank(record: JobRecord) -> JobRank:
    text = record.preemptable_from if record.state == "RUNNING" else ""
    return JobRank(
        record.number,
        tuple(record.partition.split(",")),
        record.qos,
        record.priority,
        datetime.fromisoformat(text).timestamp() if text else None,
    )
