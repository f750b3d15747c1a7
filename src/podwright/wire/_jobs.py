"""The values of podwright.v1 for jobs that wait in a scheduler's own queue.

Listings show them beside the server's queue.
"""

from __future__ import annotations

from podwright.wire._method import EVERYBODY, AuditEntry, May, Method, Repeat, Rights
from podwright.wire._value import Value
from podwright.wire._values import Empty, ListRequest


class JobInfo(Value):
    """A job that waits for devices in a scheduler's queue. scheduler: who said so; the server
    writes it. place: in that queue, from 1. needs: what it waits for, in words. since: seconds
    since 1970; 0: unknown.
    """

    id: str
    scheduler: str = ""
    place: int = 0
    owner: str = ""
    asked: str = ""
    needs: str = ""
    priority: int = 0
    since: float = 0.0
    cluster: str = ""
    allocation: str = ""


class JobReport(Value):
    """All jobs that wait in a scheduler's queue now, in its order. They replace the jobs of its
    last report. guest: the name of the scheduler, where several of them report under one account;
    at most 64 printable characters.
    """

    jobs: list[JobInfo] = []
    guest: str = ""


class JobList(Value):
    """Jobs that schedulers said wait, scheduler by scheduler, each in its own order."""

    jobs: list[JobInfo] = []
    next_page_token: str = ""


_SCHEDULERS = Rights(May.ANY, May.NO, May.NO, May.OWN, May.NO)
CALLS = (
    Method(
        "ReportJobs",
        JobReport,
        Empty,
        _SCHEDULERS,
        Repeat.SAME,
        None,
        AuditEntry.NOTHING,
        stored=False,
    ),
    Method("ListJobs", ListRequest, JobList, EVERYBODY, Repeat.READS),
)
