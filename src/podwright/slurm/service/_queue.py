"""What Slurm's own list of jobs says, read from squeue's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from podwright.slurm.service._commands import Slurm
from podwright.slurm.service._pods import Pod, of_job, parse_licences
from podwright.wire import Unavailable

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
}
#: Without a limit: Slurm 22.05 then shows a year, and an end a year ahead.
_ENDLESS = ("UNLIMITED", "365-00:00:00")
FORMAT = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())
#: States in which a job has ended and its EpilogSlurmctld has returned.
_OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"}
    | {"OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
_COMMENT = re.compile(r"ipus=(\d+)(?: gcds=(\d+))?(?: pod=(\S+?))?(?:;|\s|$)")


class Listed(NamedTuple):
    """A job as Slurm lists it. het: its heterogeneous job, 0 for an ordinary one.

    end: when its time is over, as text that sorts; what has no end sorts last.
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

    @property
    def over(self) -> bool:
        """Has it ended, its epilog included?"""
        return self.state in _OVER

    @property
    def waits(self) -> bool:
        """Is it in the queue, or again in it?"""
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")

    @property
    def head(self) -> str:
        """What job_submit wrote before all other words of a component's comment, and a `; `."""
        said = _COMMENT.match(self.comment) if self.het else None
        return said[0].rstrip("; ") + "; " if said else ""

    def wants(self, pods: Sequence[Pod]) -> tuple[Pod, int, int] | None:
        """Pod, devices, GCDs (0: open); None for a job without devices."""
        said = _COMMENT.match(self.comment) if self.het else None
        if said:
            pod = next((pod for pod in pods if pod.type == said[3]), pods[0])
            return pod, int(said[1]), int(said[2] or 0)
        found = of_job(parse_licences(self.licences), pods)
        return (*found, 0) if found else None


async def listed(slurm: Slurm, job: int = 0) -> dict[int, Listed]:
    """All jobs that slurmctld remembers, or one. Raises Unavailable where it does not say."""
    one = ["-j", str(job)] if job else []
    said = await slurm.run("squeue", "-h", "-a", "-r", "-t", "all", *one, "-O", FORMAT)
    if said.code and job and "Invalid job id" in said.err:
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
                end="N/A" if words[7] in _ENDLESS else words[6],
                licences=words[8],
                comment="" if words[9] == "N/A" else words[9],
            )
            found[here.job] = here
    return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
