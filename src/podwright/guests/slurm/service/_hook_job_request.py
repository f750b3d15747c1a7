"""A job as hooks describe it. Every way of scheduling gets its requests in this form."""

from __future__ import annotations

from typing import Final

import msgspec

from podwright.errors import InvalidRequest

#: Where a service tells everybody whether it is active or stands by.
ROLE_PATH: Final = "/slurm.v1/Role"


class HookJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the hook describes it, in Slurm's terms.

    user: the name of its owner, or the number where there is no name. problem: what went wrong
    before the hook's own work; empty: nothing. movable: its launch may be asked to move, as SPANK
    passed on. ipus: the request, as SPANK passed it on at submission; Slurm lets nobody change it
    later.

    Only steps fill these in: step is `batch` or `step`. restart and submitted (seconds since 1970)
    are set where the step asked slurmctld; None: the step does not know. unread: the note of this
    part of a heterogeneous job is lost, and ipus is what was requested for some part of that job;
    or the step is of an ordinary job that it joined, which has no licences of ours.
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
        """The job's name for scontrol. The plain number of an array or of a heterogeneous job would
        mean all of it.
        """
        if self.array_job and self.array_task is not None:
            return f"{self.array_job}_{self.array_task}"
        if self.het_job:
            return f"{self.het_job}+{self.het_offset}"
        return str(self.job)


def hook_job(request_body: bytes) -> HookJob:
    """Return the job that a hook's request describes. All values in the request are text. Raises
    InvalidRequest.
    """
    try:
        text_fields = msgspec.json.decode(request_body, type=dict[str, str])
        if not text_fields.get("user"):
            text_fields["user"] = text_fields.get("uid", "")
        return msgspec.convert(
            {name: field_value for name, field_value in text_fields.items() if field_value},
            HookJob,
            strict=False,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{error}", operation="a hook's request") from None
