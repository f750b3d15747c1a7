"""The values of podwright.v1 about jobs that wait in a scheduler's own queue, to be shown beside
the waiting line."""

from __future__ import annotations

from podwright.wire._method import EVERYBODY, May, Method, Repeat, Rights
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
    """All jobs that wait in the caller's queue now, first first, in the place of those said
    before."""

    jobs: list[JobInfo] = []


class JobList(Value):
    """Jobs that schedulers said wait, scheduler by scheduler, each in its own order."""

    jobs: list[JobInfo] = []
    next_page_token: str = ""


_SCHEDULERS = Rights(May.ANY, May.NO, May.NO, May.OWN, May.NO)
CALLS = (
    Method("ReportJobs", JobReport, Empty, _SCHEDULERS, Repeat.SAME, audited=False, stored=False),
    Method("ListJobs", ListRequest, JobList, EVERYBODY, Repeat.READS),
)
