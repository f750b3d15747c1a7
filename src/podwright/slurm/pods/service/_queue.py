"""What Slurm's own list of jobs says, read from squeue's words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from podwright.errors import Unavailable
from podwright.slurm.pods.service._pods import HET_WAIT, MARK, SlurmPod, of_job, parse_licences
from podwright.slurm.site.commands import Slurm

_WIDTHS = {
    "JobID": 20,
    "State": 20,
    "RestartCnt": 12,
    "HetJobID": 20,
    "PriorityLong": 22,
    "Reason": 40,
    "EndTime": 22,
    "TimeLimit": 16,
    "Licenses": 1000,
    "admin_comment": 1000,
    "UserID": 12,
    "SubmitTime": 22,
}
#: Without a limit: Slurm 22.05 then shows a year, and an end a year ahead.
_ENDLESS = ("UNLIMITED", "365-00:00:00")
FORMAT = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())
#: States in which a job has ended and its EpilogSlurmctld has returned.
_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
#: What job_submit wrote for an ordinary job, where SPANK hands over nothing.
_ASKED = re.compile(r"(?:ipus=\d+|vipu=[^;\s]+)(?:;|\s|$)")
_COMMENT = re.compile(r"ipus=(\d+)(?: gcds=(\d+))?(?: pod=(\S+?))?(?:;|\s|$)")


class Listed(NamedTuple):
    """A job as Slurm lists it. het: its heterogeneous job, 0 for an ordinary one.

    end: when its time is over, as text that sorts; what has no end sorts last. submitted: seconds
    since 1970; a job that is requeued counts as submitted anew. 0: not known, as is a uid of -1.
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
        """The job as scontrol must be told it, where a leader's number alone means all parts."""
        return f"{self.job}+0" if self.job == self.het else str(self.job)

    @property
    def over(self) -> bool:
        """Has it ended, its epilog included?"""
        return self.state in _OVER

    @property
    def waits(self) -> bool:
        """Is it in the queue, or again in it?"""
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")

    @property
    def counts(self) -> bool:
        """Does Slurm count its licences as used?"""
        return not (self.waits or self.over)

    @property
    def head(self) -> str:
        """What job_submit wrote before all other words of its comment, and a `; `."""
        said = (_COMMENT if self.het else _ASKED).match(self.comment)
        return said[0].rstrip("; ") + "; " if said else ""

    @property
    def lost(self) -> bool:
        """Is it a component without that: one that was noted to have nothing says so?"""
        return bool(self.het and not self.head)

    def counted(self, pods: Sequence[SlurmPod]) -> bool:
        """Does it, or its heterogeneous job, have devices, by what Slurm still says?"""
        licences = parse_licences(self.licences)
        return bool(licences.keys() & {MARK, HET_WAIT}) or self.wants(pods) is not None

    def wants(self, pods: Sequence[SlurmPod]) -> tuple[SlurmPod, int, int] | None:
        """Pod, devices, GCDs (0: open); None for a job without devices."""
        said = _COMMENT.match(self.comment) if self.het else None
        if said and not int(said[1]):
            return None
        if said:
            pod = next((pod for pod in pods if pod.type == said[3]), pods[0])
            return pod, int(said[1]), int(said[2] or 0)
        found = of_job(parse_licences(self.licences), pods)
        return (*found, 0) if found else None


def lost_note(job: int) -> str:
    """Why a component gets nothing, and runs nothing."""
    return f"what job {job} is to have is not noted in its AdminComment any more"


class Listing:
    """Single jobs, looked up together: however many ask at once, one squeue runs at a time, and
    says what is so when it begins, or later."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._running: asyncio.Task[dict[int, Listed]] | None = None
        self._next: asyncio.Task[dict[int, Listed]] | None = None
        self._asked: set[int] = set()

    async def job(self, job: int) -> Listed | None:
        """What slurmctld says of a job; None: it knows none. Raises Unavailable."""
        self._asked.add(job)
        if self._next is None:
            self._next = asyncio.create_task(self._list())
            self._next.add_done_callback(_seen)
        return (await asyncio.shield(self._next)).get(job)

    async def _list(self) -> dict[int, Listed]:
        if self._running is not None:
            await asyncio.wait({self._running})
        self._running, self._next = self._next, None
        asked, self._asked = self._asked, set()
        return await listed(self._slurm, *sorted(asked))


def _seen(task: asyncio.Task[dict[int, Listed]]) -> None:
    """All who asked may have gone before slurmctld refused."""
    if not task.cancelled():
        task.exception()


async def listed(slurm: Slurm, *jobs: int) -> dict[int, Listed]:
    """All jobs that slurmctld remembers, or some. Raises Unavailable where it does not say."""
    some = ["-j", ",".join(map(str, jobs))] if jobs else []
    said = await slurm.run("squeue", "-h", "-a", "-r", "--local", "-t", "all", *some, "-O", FORMAT)
    if said.code and jobs and "Invalid job id" in said.err:
        return {}
    if said.code:
        raise Unavailable(f"squeue failed: {said.text[:300]}")
    found = {}
    for row in said.out.splitlines():
        words, at = [], 0
        for width in _WIDTHS.values():
            words.append(row[at : at + width].strip())
            at += width
        if words[0].isdecimal():
            here = Listed(
                job=int(words[0]),
                state=words[1],
                restart=_number(words[2]),
                het=_number(words[3]),
                priority=_number(words[4]),
                reason=words[5],
                end="N/A" if words[7] in _ENDLESS else _clock(words[6]),
                licences=words[8],
                comment="" if words[9] == "N/A" else words[9],
                uid=_number(words[10]) if words[10] else -1,
                submitted=_number(words[11]),
            )
            found[here.job] = here
    return found


def _clock(text: str) -> str:
    """Seconds since 1970 as Slurm writes times for people here; what is none stays as it is."""
    return datetime.fromtimestamp(int(text)).isoformat() if text.isdecimal() else text


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
