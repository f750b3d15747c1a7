"""Slurm's list of jobs, read from what squeue prints."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from podwright.errors import Unavailable
from podwright.guests.slurm.service._pods import HET_WAIT, MARK, SlurmPod, of_job, parse_licences
from podwright.slurm.reader import listing_format, read_listing
from podwright.slurm.site.commands import Slurm

_WIDTHS = {
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
}
#: Time limits that mean none: for such jobs Slurm 22.05 shows a year, and an end a year ahead.
_ENDLESS = ("UNLIMITED", "365-00:00:00")
FORMAT = listing_format(**_WIDTHS)
#: States in which a job has ended and its EpilogSlurmctld has returned.
_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
#: The note that job_submit writes for an ordinary job where SPANK passes nothing on.
_ASKED = re.compile(r"(?:ipus=\d+|vipu=[^;\s]+)(?:;|\s|$)")
_COMMENT = re.compile(r"ipus=(\d+)(?: gcds=(\d+))?(?: pod=(\S+?))?(?:;|\s|$)")


class Listed(NamedTuple):
    """A job as Slurm lists it. het: the leader of its heterogeneous job; 0: it is an ordinary job.

    end: when its time is over, as text that sorts; a job without an end sorts last. submitted:
    seconds since 1970, where a requeued job counts as submitted again; 0: not known. uid: -1: not
    known.
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

    @property
    def alone(self) -> str:
        """The job's name for scontrol. A leader's plain number would mean all parts."""
        return f"{self.job}+0" if self.job == self.het else str(self.job)

    @property
    def over(self) -> bool:
        """Whether it has ended, its epilog included."""
        return self.state in _OVER

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
        match = (_COMMENT if self.het else _ASKED).match(self.comment)
        return match[0].rstrip("; ") + "; " if match else ""

    @property
    def lost(self) -> bool:
        """Whether it is a component without such a note. Even a component without devices has
        one.
        """
        return bool(self.het and not self.head)

    def counted(self, pods: Sequence[SlurmPod]) -> bool:
        """Return whether it, or its heterogeneous job, has devices by what Slurm still shows."""
        licences = parse_licences(self.licences)
        return bool(licences.keys() & {MARK, HET_WAIT}) or self.request(pods) is not None

    def request(self, pods: Sequence[SlurmPod]) -> tuple[SlurmPod, int, int] | None:
        """Return the pod, the number of devices and the number of GCDs (0: open), or None without
        devices.
        """
        match = _COMMENT.match(self.comment) if self.het else None
        if match and not int(match[1]):
            return None
        if match:
            pod = next((pod for pod in pods if pod.type == match[3]), pods[0])
            return pod, int(match[1]), int(match[2] or 0)
        request = of_job(parse_licences(self.licences), pods)
        return (*request, 0) if request else None


def lost_note(job: int) -> str:
    """Return why a component gets no devices and runs nothing."""
    return f"what job {job} is to have is not noted in its AdminComment any more"


class Listing:
    """Looks single jobs up together: however many callers ask at once, one squeue runs at a time.

    A caller never gets an older answer than its question: it joins a squeue that has not started
    yet, and the reply shows the state when that squeue starts, or a later one.
    """

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._running: asyncio.Task[dict[int, Listed]] | None = None
        self._next: asyncio.Task[dict[int, Listed]] | None = None
        self._requested: set[int] = set()

    async def job(self, job: int) -> Listed | None:
        """Return what slurmctld lists for a job, or None if it knows no such job. Raises
        Unavailable.
        """
        self._requested.add(job)
        if self._next is None:
            self._next = asyncio.create_task(self._list())
            self._next.add_done_callback(_seen)
        return (await asyncio.shield(self._next)).get(job)

    async def _list(self) -> dict[int, Listed]:
        if self._running is not None:
            await asyncio.wait({self._running})
        self._running, self._next = self._next, None
        jobs, self._requested = self._requested, set()
        return await listed(self._slurm, *sorted(jobs))


def _seen(task: asyncio.Task[dict[int, Listed]]) -> None:
    """Take the error of a task, as all callers may have gone before slurmctld refused. Asyncio
    would otherwise log it as never retrieved.
    """
    if not task.cancelled():
        task.exception()


async def listed(slurm: Slurm, *jobs: int) -> dict[int, Listed]:
    """Return all jobs that slurmctld remembers, or only the given ones, by number. Raises
    Unavailable where it does not answer.
    """
    selection = ["-j", ",".join(map(str, jobs))] if jobs else []
    reply = await slurm.run(
        "squeue", "-h", "-a", "-r", "--local", "-t", "all", *selection, "-O", FORMAT
    )
    if reply.code and jobs and "Invalid job id" in reply.err:
        return {}
    if reply.code:
        raise Unavailable(f"squeue failed: {reply.text[:300]}")
    rows = {}
    for row in read_listing(reply.out, **_WIDTHS):
        if row["job"].isdecimal():
            job = Listed(
                job=int(row["job"]),
                state=row["state"],
                restart=_number(row["restarts"]),
                het=_number(row["het_job"]),
                priority=_number(row["priority"]),
                reason=row["reason"],
                end="N/A" if row["time_limit"] in _ENDLESS else _clock(row["end"]),
                licences=row["licences"],
                comment="" if row["comment"] == "N/A" else row["comment"],
                uid=_number(row["user_id"]) if row["user_id"] else -1,
                submitted=_number(row["submitted"]),
            )
            rows[job.job] = job
    return rows


def _clock(text: str) -> str:
    """Return seconds since 1970 as local time in ISO form. Other text is returned unchanged."""
    return datetime.fromtimestamp(int(text)).isoformat() if text.isdecimal() else text


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
