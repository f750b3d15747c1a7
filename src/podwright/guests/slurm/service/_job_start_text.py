"""One start of a job, as text that a partition or a lease carries. This text is the durable record
of who holds what since when.

The text is in the server's store, in the very commit that gives the devices. So it outlives every
process here, and a service on another host finds it too.

`7` is job 7, `7/1` is job 7 after one restart, and `8 of 7` is a part of the heterogeneous job 7.
The cluster follows, and the time of submission, because a Slurm that has lost its state gives a
number out again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

#: Before such words, in a lease's holder.
JOB: Final = "Slurm job "
_START_PATTERN: Final = re.compile(
    r"(\d+)(?:/(\d+))?(?: of (\d+))?(?:, cluster ([^,\s]+))?(?:, submitted (\S+))?"
)


class Life(NamedTuple):
    """One start of a job.

    restart: how often Slurm had restarted the job. leader: of its heterogeneous job, or 0.
    submitted: seconds since 1970; 0: not known.
    """

    job: int
    restart: int = 0
    leader: int = 0
    cluster: str = ""
    submitted: int = 0

    @property
    def words(self) -> str:
        """The text that the server keeps."""
        text = f"{self.job}/{self.restart}" if self.restart else f"{self.job}"
        text += f" of {self.leader}" if self.leader else ""
        text += f", cluster {self.cluster}" if self.cluster else ""
        if self.submitted:
            text += f", submitted {datetime.fromtimestamp(self.submitted, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return text


def in_short(start_text: str) -> str:
    """Return the part of such text that fits a table: the job alone."""
    return start_text.partition(", cluster ")[0].partition(", submitted ")[0]


def life(start_text: str) -> Life | None:
    """Return the start that such text describes, or None if the text is not ours."""
    start_match = _START_PATTERN.fullmatch(start_text)
    if start_match is None:
        return None
    submitted_at = 0
    if start_match[5]:
        try:
            submitted_at = int(datetime.strptime(start_match[5], "%Y-%m-%dT%H:%M:%S%z").timestamp())
        except ValueError:
            return None
    return Life(
        int(start_match[1]),
        int(start_match[2] or 0),
        int(start_match[3] or 0),
        start_match[4] or "",
        submitted_at,
    )
