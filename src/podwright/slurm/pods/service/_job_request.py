"""A job as hooks describe it: what every way of scheduling is asked with."""

from __future__ import annotations

import msgspec

from podwright.errors import InvalidRequest


class HookJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the hook describes it, in Slurm's words. user: its owner's name, or number where
    there is none. problem: what went wrong before the hook's own work, where something did.

    movable: its launch may be asked to move, as SPANK handed that over.
    ipus: the request, as SPANK handed it over at submission; Slurm lets nobody change it later.
    What only a step says: step (`batch` or `step`), and, where it asked slurmctld, restart and
    submitted (seconds since 1970). None: it does not know. unread: it is of a part of a
    heterogeneous job whose note is lost, and ipus is what was said for some part of it; or of an
    ordinary job that it joined, which has no licences of ours.
    """

    job: int
    uid: int | None = None
    user: str = ""
    account: str = ""
    name: str = ""
    licences: str = ""
    hosts: str = ""
    cluster: str = ""
    restart: int | None = None
    het_job: int = 0
    het_offset: int = 0
    array_job: int = 0
    array_task: int | None = None
    replicas: int = 0
    movable: bool = False
    ipus: str = ""
    problem: str = ""
    submitted: int | None = None
    step: str = ""
    unread: bool = False

    @property
    def reference(self) -> str:
        """The job as scontrol must be told it: an array's or a heterogeneous job's own number
        would mean all of it."""
        if self.array_job and self.array_task is not None:
            return f"{self.array_job}_{self.array_task}"
        if self.het_job:
            return f"{self.het_job}+{self.het_offset}"
        return str(self.job)


def hook_job(body: bytes) -> HookJob:
    """The job that a hook's request describes, in text alone. Raises InvalidRequest."""
    try:
        said = msgspec.json.decode(body, type=dict[str, str])
        if not said.get("user"):
            said["user"] = said.get("uid", "")
        return msgspec.convert({k: v for k, v in said.items() if v}, HookJob, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{error}", asked="a hook's request") from None
