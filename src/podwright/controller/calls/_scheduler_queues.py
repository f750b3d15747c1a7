"""Jobs that wait in the queues of schedulers, shown beside the controller's own queue.

Schedulers report them. They are not stored, and a scheduler that has reported nothing for five
minutes has none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from podwright.controller.calls import _views as views
from podwright.controller.calls._call_services import Services
from podwright.controller.calls._list_pages import ListPage, bad_token
from podwright.controller.state._caller import Caller
from podwright.errors import InvalidRequest
from podwright.wire import Empty, JobInfo, JobList, JobReport, ListRequest

MOST: Final = 2000  #: jobs of a scheduler
SCHEDULERS: Final = 16  #: who spoke last stays
SILENT: Final = 300.0  #: seconds
AWAY: Final = 150.0  #: seconds without a report; a service reports each minute at least
_WORDS: Final = 300  #: characters
_GUEST: Final = 64  #: characters


async def report_jobs(services: Services, caller: Caller, request: JobReport) -> Empty:
    """Take over a scheduler's queue. Raises InvalidRequest for more than it may have.

    Schedulers of one account are told apart by their guest's name. A name can replace no queue of
    another account, since the account is a part of the key.
    """
    if len(request.guest) > _GUEST or not request.guest.isprintable():
        raise InvalidRequest(
            "the guest's name is too long or not printable",
            operation="report jobs",
            would_work=f"use at most {_GUEST} printable characters",
        )
    if len(request.jobs) > MOST:
        raise InvalidRequest(
            f"{len(request.jobs)} jobs are more than are shown",
            operation="report jobs",
            would_work=f"the first {MOST}",
        )
    queues = services.core.queues
    key = f"{caller.name}/{request.guest}" if request.guest else caller.name
    before = queues.pop(key, (0.0, []))[1]
    scheduler = request.guest or caller.name
    jobs = [_short(job, scheduler, place) for place, job in enumerate(request.jobs, 1)]
    queues[key] = (services.core.now(), jobs)
    while len(queues) > SCHEDULERS:
        queues.popitem(last=False)
    if jobs != before:
        services.core.journal.changes += 1
    return Empty()


async def list_jobs(services: Services, caller: Caller, request: ListRequest) -> JobList:
    """The jobs that wait, by scheduler."""
    views.check_filters(services.core, request, "list jobs")
    page = ListPage[JobInfo](request)
    behind = _behind(request.page_token)
    now = services.core.now()
    for name, (reported_at, jobs) in sorted(services.core.queues.items()):
        for job in jobs if now - reported_at < SILENT else ():
            if (name, job.place) <= behind or not (
                services.core.sight.waiter(caller, job.owner)
                and request.cluster in ("", job.cluster)
                and request.allocation in ("", job.allocation)
            ):
                continue
            if page.full:
                return JobList(jobs=page.items, next_page_token=page.token)
            page.add(f"{job.place}/{name}", job)
    return JobList(jobs=page.items, next_page_token=page.token)


def _short(job: JobInfo, scheduler: str, place: int) -> JobInfo:
    texts = {name: _clean(getattr(job, name)) for name in ("id", "owner", "asked", "needs")}
    return msgspec.structs.replace(job, scheduler=scheduler, place=place, **texts)


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_WORDS])


def _behind(token: str) -> tuple[str, int]:
    place, _, name = token.partition("/")
    if not token:
        return "", 0
    if not (place.isdecimal() and len(place) < 10):
        raise bad_token(token)
    return name, int(place)
