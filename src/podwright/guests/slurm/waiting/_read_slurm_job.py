"""Reads one job as Slurm shows it to anybody."""

from __future__ import annotations

import re
from typing import Final

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.slurm.reader import JobRecord, read_jobs
from podwright.slurm.site.commands import Slurm

_JOB_ID: Final = re.compile(r"\d+(?:_\d+|\+\d+)?")


async def find(slurm: Slurm, job_id: str) -> JobRecord:
    """Return the job of that number. Raises InvalidRequest, NotFound, Unavailable."""
    if not _JOB_ID.fullmatch(job_id):
        raise InvalidRequest(
            f"{job_id[:40]!r} is not a job",
            would_work="give its number, as squeue shows it: 123, 123_4, 123+1",
        )
    scontrol_reply = await slurm.run("scontrol", "-o", "show", "job", job_id)
    if scontrol_reply.code and "Invalid job id" in scontrol_reply.text:
        raise NotFound(
            f"Slurm knows no job {job_id}", would_work="sacct -j, for one that ended long ago"
        )
    records = [] if scontrol_reply.code else read_jobs(scontrol_reply.out)
    if not records:
        raise Unavailable(
            f"Slurm does not say: {scontrol_reply.text[:200]}", operation=f"job {job_id}"
        )
    return records[0]
