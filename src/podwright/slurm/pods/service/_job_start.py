"""One start of a job, in the words that a partition or a lease carries: the durable record of who
holds what since when. It stands in the server's store, written in the very commit that gives the
devices, so it outlives every process here and is there for a service on another host.

`7`, `7/1` started anew once, `8 of 7` a part of a heterogeneous job; then the cluster, and when the
job was submitted: Slurm gives a number out again after it has lost its state.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

#: Before such words, in a lease's holder.
JOB: Final = "Slurm job "
_WORDS: Final = re.compile(
    r"(\d+)(?:/(\d+))?(?: of (\d+))?(?:, cluster ([^,\s]+))?(?:, submitted (\S+))?"
)


class Life(NamedTuple):
    """A start. restart: how often Slurm had started the job anew. leader: of its heterogeneous
    job, or 0. submitted: seconds since 1970, or 0: not known."""

    job: int
    restart: int = 0
    leader: int = 0
    cluster: str = ""
    submitted: int = 0

    @property
    def words(self) -> str:
        """As the server keeps it."""
        out = f"{self.job}/{self.restart}" if self.restart else f"{self.job}"
        out += f" of {self.leader}" if self.leader else ""
        out += f", cluster {self.cluster}" if self.cluster else ""
        if self.submitted:
            out += f", submitted {datetime.fromtimestamp(self.submitted, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return out


def in_short(words: str) -> str:
    """Such words as a table has room for: the job alone."""
    return words.partition(", cluster ")[0].partition(", submitted ")[0]


def life(words: str) -> Life | None:
    """What such words say; None: they are not ours."""
    said = _WORDS.fullmatch(words)
    if said is None:
        return None
    at = 0
    if said[5]:
        try:
            at = int(datetime.strptime(said[5], "%Y-%m-%dT%H:%M:%S%z").timestamp())
        except ValueError:
            return None
    return Life(int(said[1]), int(said[2] or 0), int(said[3] or 0), said[4] or "", at)
