"""Jobs that wait in schedulers' queues: told by those, shown beside the waiting line, never
written down. One who has said nothing for five minutes has none."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec

from podwright.controller import _views as views
from podwright.controller._caller import Caller
from podwright.controller._core import Core
from podwright.controller._list_pages import ListPage, bad_token
from podwright.errors import InvalidRequest
from podwright.wire import Empty, JobInfo, JobList, JobReport, ListRequest

MOST: Final = 2000  #: jobs of a scheduler
SCHEDULERS: Final = 16  #: who spoke last stays
SILENT: Final = 300.0  #: seconds
_WORDS: Final = 300  #: characters


class SchedulerQueues:
    """The part of the controller that shows others' queues."""

    _core: Core

    async def report_jobs(self, caller: Caller, request: JobReport) -> Empty:
        """Take over a scheduler's queue. Raises InvalidRequest for more than it may have."""
        if len(request.jobs) > MOST:
            raise InvalidRequest(
                f"{len(request.jobs)} jobs are more than are shown",
                asked="report jobs",
                would_work=f"the first {MOST}",
            )
        queues = self._queues
        before = queues.pop(caller.name, (0.0, []))[1]
        jobs = [_short(job, caller.name, place) for place, job in enumerate(request.jobs, 1)]
        queues[caller.name] = (self._core.now(), jobs)
        while len(queues) > SCHEDULERS:
            queues.popitem(last=False)
        if jobs != before:
            self._core.journal.changes += 1
        return Empty()

    async def list_jobs(self, caller: Caller, request: ListRequest) -> JobList:
        """Jobs that wait, scheduler by scheduler."""
        views.check_filters(self._core, request, "list jobs")
        page = ListPage[JobInfo](request)
        behind = _behind(request.page_token)
        now = self._core.now()
        for name, (told, jobs) in sorted(self._queues.items()):
            for job in jobs if now - told < SILENT else ():
                if (name, job.place) <= behind or not (
                    request.cluster in ("", job.cluster)
                    and request.allocation in ("", job.allocation)
                ):
                    continue
                if page.full:
                    return JobList(jobs=page.items, next_page_token=page.token)
                page.add(f"{job.place}/{name}", job)
        return JobList(jobs=page.items, next_page_token=page.token)

    @property
    def _queues(self) -> OrderedDict[str, tuple[float, list[JobInfo]]]:
        return self._core.queues


def _short(job: JobInfo, scheduler: str, place: int) -> JobInfo:
    said = {name: _clean(getattr(job, name)) for name in ("id", "owner", "asked", "needs")}
    return msgspec.structs.replace(job, scheduler=scheduler, place=place, **said)


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_WORDS])


def _behind(token: str) -> tuple[str, int]:
    place, _, name = token.partition("/")
    if not token:
        return "", 0
    if not (place.isdecimal() and len(place) < 10):
        raise bad_token(token)
    return name, int(place)
