"""One job as Slurm shows it to anybody: `scontrol show job`, field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.slurm.site.commands import Slurm

_ID: Final = re.compile(r"\d+(?:_\d+|\+\d+)?")
_FIELD: Final = re.compile(r"(?:^| )([A-Z][A-Za-z:/]*)=")


class ShownJob(NamedTuple):
    """A job. name: as it was asked for. fields: Slurm's own names and words."""

    name: str
    fields: Mapping[str, str]

    def get(self, field: str) -> str:
        """A field; what Slurm calls null, unknown or not available is empty."""
        value = self.fields.get(field, "")
        return "" if value in ("(null)", "Unknown", "N/A", "None") else value

    @property
    def id(self) -> int:
        """Slurm's number, by which partitions are named."""
        return int(self.get("JobId") or 0)

    @property
    def user(self) -> str:
        """Whose it is."""
        return self.get("UserId").partition("(")[0]

    @property
    def state(self) -> str:
        """PENDING, RUNNING and so on."""
        return self.get("JobState")


async def find(slurm: Slurm, name: str) -> ShownJob:
    """The job of that number. Raises InvalidRequest, NotFound, Unavailable."""
    if not _ID.fullmatch(name):
        raise InvalidRequest(
            f"{name[:40]!r} is no job",
            would_work="its number, as squeue shows it: 123, 123_4, 123+1",
        )
    said = await slurm.run("scontrol", "-o", "show", "job", name)
    if said.code and "Invalid job id" in said.text:
        raise NotFound(
            f"Slurm knows no job {name}", would_work="sacct -j, for one that ended long ago"
        )
    line = next((one for one in said.out.splitlines() if one.startswith("JobId=")), "")
    if said.code or not line:
        raise Unavailable(f"Slurm does not say: {said.text[:200]}", asked=f"job {name}")
    return ShownJob(name, _fields(line))


def _fields(line: str) -> dict[str, str]:
    """Comments hold blanks, so a field goes up to the next word that is a field's name."""
    marks = list(_FIELD.finditer(line))
    ends = [mark.start() for mark in marks[1:]] + [len(line)]
    return {mark[1]: line[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
