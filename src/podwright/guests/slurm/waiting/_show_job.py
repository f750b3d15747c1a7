"""Reads one job as Slurm shows it to anybody."""

from __future__ import annotations

import re
from typing import Final

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.slurm.reader import JobRecord, read_jobs
from podwright.slurm.site.commands import Slurm

_ID: Final = re.compile(r"\d+(?:_\d+|\+\d+)?")


async def find(slurm: Slurm, name: str) -> JobRecord:
    """Return the job of that number. Raises InvalidRequest, NotFound, Unavailable."""
    if not _ID.fullmatch(name):
        raise InvalidRequest(
            f"{name[:40]!r} is not a job",
            would_work="give its number, as squeue shows it: 123, 123_4, 123+1",
        )
    reply = await slurm.run("scontrol", "-o", "show", "job", name)
    if reply.code and "Invalid job id" in reply.text:
        raise NotFound(
            f"Slurm knows no job {name}", would_work="sacct -j, for one that ended long ago"
        )
    records = [] if reply.code else read_jobs(reply.out)
    if not records:
        raise Unavailable(f"Slurm does not say: {reply.text[:200]}", operation=f"job {name}")
    return records[0]
