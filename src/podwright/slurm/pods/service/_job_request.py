"""A job as hooks describe it: what every way of scheduling is asked with."""

from __future__ import annotations

import msgspec

from podwright.errors import InvalidRequest


class Asked(msgspec.Struct, frozen=True):
    """A job as the hook describes it: Slurm's words, all of them text. problem: what went wrong
    before the hook's own work, where something did.

    ipus: the request, as SPANK handed it over at submission; Slurm lets nobody change it later.
    What only a step says: step (`batch` or `step`), and, where it asked slurmctld, restart and
    submitted (seconds since 1970); empty: it does not know.
    """

    job: str
    uid: str = ""
    user: str = ""
    account: str = ""
    name: str = ""
    licences: str = ""
    hosts: str = ""
    cluster: str = ""
    restart: str = ""
    het_job: str = ""
    het_offset: str = ""
    array_job: str = ""
    array_task: str = ""
    replicas: str = ""
    ipus: str = ""
    problem: str = ""
    submitted: str = ""
    step: str = ""

    def number(self, field: str) -> int:
        """A field as a number. Raises InvalidRequest."""
        text = getattr(self, field) or "0"
        if not text.isdecimal():
            raise InvalidRequest(f"{field} is no number: {text[:40]!r}")
        return int(text)
