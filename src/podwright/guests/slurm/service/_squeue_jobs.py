"""Slurm's list of jobs, read from what squeue prints."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from podwright.errors import Unavailable
from podwright.guests.slurm.service._pods_and_licences import (
    HET_WAIT_LICENCE,
    JOB_MARK_LICENCE,
    SlurmPod,
    of_job,
    parse_licences,
)
from podwright.slurm.reader import listing_format, read_listing
from podwright.slurm.site.commands import Slurm

_SQUEUE_COLUMN_WIDTHS = {
    "job": 20,
    "state": 20,
    "restarts": 12,
    "het_job": 20,
    "priority": 22,
    "reason": 40,
    "end": 22,
    "time_limit": 16,
    "licences": 1000,
    "comment": 1000,
    "user_id": 12,
    "submitted": 22,
    "array_job": 20,
    "array_task": 20,
    "eligible": 22,
}
#: Seconds between two squeue that come without a pause, in which questions are gathered.
GATHER_S = 0.05
#: Time limits that mean none: for such jobs Slurm 22.05 shows a year, and an end a year ahead.
_ENDLESS_TIME_LIMITS = ("UNLIMITED", "365-00:00:00")
FORMAT = listing_format(**_SQUEUE_COLUMN_WIDTHS)
#: States in which a job has ended and its EpilogSlurmctld has returned.
_ENDED_JOB_STATES = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
#: The note that job_submit writes for an ordinary job where SPANK passes nothing on.
_ORDINARY_JOB_NOTE = re.compile(r"(?:ipus=\d+|vipu=[^;\s]+)(?:;|\s|$)")
_HET_PART_NOTE = re.compile(r"ipus=(\d+)(?: gcds=(\d+))?(?: pod=(\S+?))?(?:;|\s|$)")


class Listed(NamedTuple):
    """A job as Slurm lists it. het: the leader of its heterogeneous job; 0: it is an ordinary job.

    end: when its time is over, as text that sorts; a job without an end sorts last. submitted:
    seconds since 1970, where a requeued job counts as submitted again; 0: not known. uid: -1: not
    known. array, task: of a task of a job array: the array's number and the task's; array 0: it is
    none. eligible: since when Slurm may start it, in seconds since 1970; 0: not known.
    """

    job: int
    state: str
    restart: int
    het: int
    priority: int
    reason: str
    end: str
    licences: str
    comment: str
    uid: int = -1
    submitted: int = 0
    array: int = 0
    task: int = 0
    eligible: int = 0

    @property
    def name(self) -> str:
        """The job's name for people and for the server. All pending tasks of an array have one
        number, so a task is named as Slurm names it: 123_4."""
        return f"{self.array}_{self.task}" if self.array else str(self.job)

    @property
    def alone(self) -> str:
        """The job's name for scontrol. A leader's plain number would mean all parts."""
        return f"{self.job}+0" if self.job == self.het else str(self.job)

    @property
    def over(self) -> bool:
        """Whether it has ended, its epilog included."""
        return self.state in _ENDED_JOB_STATES

    @property
    def waits(self) -> bool:
        """Whether it is in the queue, for the first time or again."""
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")

    @property
    def counts(self) -> bool:
        """Whether Slurm counts its licences as used."""
        return not (self.waits or self.over)

    @property
    def head(self) -> str:
        """What job_submit wrote at the start of its comment, followed by `; `, or "" without such a
        note.
        """
        note_match = (_HET_PART_NOTE if self.het else _ORDINARY_JOB_NOTE).match(self.comment)
        return note_match[0].rstrip("; ") + "; " if note_match else ""

    @property
    def lost(self) -> bool:
        """Whether it is a component without such a note. Even a component without devices has
        one.
        """
        return bool(self.het and not self.head)

    def counted(self, slurm_pods: Sequence[SlurmPod]) -> bool:
        """Return whether it, or its heterogeneous job, has devices by what Slurm still shows."""
        licences = parse_licences(self.licences)
        return (
            bool(licences.keys() & {JOB_MARK_LICENCE, HET_WAIT_LICENCE})
            or self.request(slurm_pods) is not None
        )

    def request(self, slurm_pods: Sequence[SlurmPod]) -> tuple[SlurmPod, int, int] | None:
        """Return the pod, the number of devices and the number of GCDs (0: open), or None without
        devices.
        """
        note_match = _HET_PART_NOTE.match(self.comment) if self.het else None
        if note_match and not int(note_match[1]):
            return None
        if note_match:
            slurm_pod = next(
                (pod for pod in slurm_pods if pod.type == note_match[3]),
                slurm_pods[0],
            )
            return slurm_pod, int(note_match[1]), int(note_match[2] or 0)
        pod_and_devices = of_job(parse_licences(self.licences), slurm_pods)
        return (*pod_and_devices, 0) if pod_and_devices else None


def lost_note_text(job_number: int) -> str:
    """Return why a component gets no devices and runs nothing."""
    return f"what job {job_number} is to have is not noted in its AdminComment any more"


class JobListing:
    """Looks jobs up together: however many callers ask at once, one squeue runs at a time.

    A caller never gets an older answer than its question: it joins a squeue that has not started
    yet, and the reply shows the state when that squeue starts, or a later one.
    """

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._running: asyncio.Task[dict[int, Listed]] | None = None
        self._next: asyncio.Task[dict[int, Listed]] | None = None
        self._requested: set[int] = set()
        self._all_requested = False

    async def all_jobs(self) -> dict[int, Listed]:
        """Return all jobs that slurmctld remembers, by number. Raises Unavailable."""
        self._all_requested = True
        return await self._next_listing()

    async def job(self, job: int) -> Listed | None:
        """Return what slurmctld lists for a job, or None if it knows no such job. Raises
        Unavailable.
        """
        self._requested.add(job)
        return (await self._next_listing()).get(job)

    async def _next_listing(self) -> dict[int, Listed]:
        if self._next is None:
            self._next = asyncio.create_task(self._list_requested_jobs())
            self._next.add_done_callback(_take_task_error)
        return await asyncio.shield(self._next)

    async def _list_requested_jobs(self) -> dict[int, Listed]:
        if self._running is not None and not self._running.done():
            await asyncio.wait({self._running})
            await asyncio.sleep(GATHER_S)
        self._running, self._next = self._next, None
        job_numbers = [] if self._all_requested else sorted(self._requested)
        self._requested, self._all_requested = set(), False
        return await listed(self._slurm, *job_numbers)


def _take_task_error(listing_task: asyncio.Task[dict[int, Listed]]) -> None:
    """Take the error of a task, as all callers may have gone before slurmctld refused. Asyncio
    would otherwise log it as never retrieved.
    """
    if not listing_task.cancelled():
        listing_task.exception()


async def listed(slurm: Slurm, *job_numbers: int) -> dict[int, Listed]:
    """Return all jobs that slurmctld remembers, or only the given ones, by number. Of the pending
    tasks of an array, which have one number, the first is returned. Raises Unavailable where
    slurmctld does not answer.
    """
    job_selection = ["-j", ",".join(map(str, job_numbers))] if job_numbers else []
    squeue_reply = await slurm.run(
        "squeue", "-h", "-a", "-r", "--local", "-t", "all", *job_selection, "-O", FORMAT
    )
    if squeue_reply.code and job_numbers and "Invalid job id" in squeue_reply.err:
        return {}
    if squeue_reply.code:
        raise Unavailable(f"squeue failed: {squeue_reply.text[:300]}")
    jobs_by_number: dict[int, Listed] = {}
    for listing_row in read_listing(squeue_reply.out, **_SQUEUE_COLUMN_WIDTHS):
        if listing_row["job"].isdecimal():
            listed_job = Listed(
                job=int(listing_row["job"]),
                state=listing_row["state"],
                restart=_number_or_zero(listing_row["restarts"]),
                het=_number_or_zero(listing_row["het_job"]),
                priority=_number_or_zero(listing_row["priority"]),
                reason=listing_row["reason"],
                end="N/A"
                if listing_row["time_limit"] in _ENDLESS_TIME_LIMITS
                else _local_time_text(listing_row["end"]),
                licences=listing_row["licences"],
                comment="" if listing_row["comment"] == "N/A" else listing_row["comment"],
                uid=_number_or_zero(listing_row["user_id"]) if listing_row["user_id"] else -1,
                submitted=_number_or_zero(listing_row["submitted"]),
                array=_number_or_zero(listing_row["array_job"])
                if listing_row["array_task"].isdecimal()
                else 0,
                task=_number_or_zero(listing_row["array_task"]),
                eligible=_number_or_zero(listing_row["eligible"]),
            )
            same_number = jobs_by_number.get(listed_job.job)
            if same_number is None or listed_job.task < same_number.task:
                jobs_by_number[listed_job.job] = listed_job
    return jobs_by_number


def _local_time_text(seconds_text: str) -> str:
    """Return seconds since 1970 as local time in ISO form. Other text is returned unchanged."""
    return (
        datetime.fromtimestamp(int(seconds_text)).isoformat()
        if seconds_text.isdecimal()
        else seconds_text
    )


def _number_or_zero(number_text: str) -> int:
    return int(number_text) if number_text.isdecimal() else 0
