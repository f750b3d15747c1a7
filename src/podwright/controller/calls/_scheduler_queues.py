"""Jobs that wait in the queues of schedulers, shown beside the controller's own queue.

Schedulers report them. They are not stored, and a scheduler that has reported nothing for five
minutes has none. `Enqueue` names the jobs for which devices are to be kept (`_guest_queue`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from podwright.controller.calls import _views as views
from podwright.controller.calls._call_services import Services
from podwright.controller.calls._list_pages import ListPage, bad_token
from podwright.controller.partitions._partitions import MAX_DURATION
from podwright.controller.queue._guest_queue import FirstJob, Need
from podwright.controller.requests._exclusive_allocations import kept_out
from podwright.controller.requests._reserve import guest_key
from podwright.controller.state._caller import Caller
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._records import PartitionRecord
from podwright.errors import InvalidRequest
from podwright.wire import (
    CreateRequest,
    Empty,
    EnqueueReply,
    EnqueueRequest,
    JobInfo,
    JobList,
    JobReport,
    KeptPlace,
    ListRequest,
    PartitionSpec,
    PoolHead,
)

MOST: Final = 2000  #: jobs of a scheduler
AWAY: Final = 150.0  #: seconds without a report; a service reports each minute at least
POOLS: Final = 64  #: of one scheduler
BLOCKS: Final = 64  #: of one job in one pool
_ENQUEUE: Final = "enqueue"
_UNNAMED: Final = "slurm"  #: the guest that a report without a name is of
_WORDS: Final = 300  #: characters
LONGEST_GUEST: Final = 64  #: characters of a scheduler's name


async def report_jobs(services: Services, caller: Caller, request: JobReport) -> Empty:
    """Take over a scheduler's queue. Raises InvalidRequest for more than it may have.

    Schedulers of one account are told apart by their guest's name. A name can replace no queue of
    another account, since the account is a part of the key.
    """
    _check_guest(request.guest, "report jobs")
    if len(request.jobs) > MOST:
        raise InvalidRequest(
            f"a report of {len(request.jobs)} jobs is too long: {MOST} jobs are shown",
            operation="report jobs",
            would_work=f"send the first {MOST}",
        )
    state, guest = services.state, request.guest or _UNNAMED
    jobs = [_short(job, guest, place) for place, job in enumerate(request.jobs, 1)]
    if services.reported.report(guest_key(caller.name, guest), jobs, state.now()):
        state.journal.changes += 1
    return Empty()


async def enqueue(services: Services, caller: Caller, request: EnqueueRequest) -> EnqueueReply:
    """Take over a scheduler's first jobs, and return what is kept in its pools.

    Raises InvalidRequest, NotFound for an unknown cluster or allocation, Denied for a pool in which
    the scheduler may create nothing. Then nothing has changed.
    """
    state, queue = services.state, services.waiting.line.guest_queue
    _check_guest(request.guest, _ENQUEUE)
    if len(request.pools) > POOLS:
        raise InvalidRequest(
            f"{len(request.pools)} pools are too many",
            operation=_ENQUEUE,
            would_work=f"send the first {POOLS}",
        )
    owners: dict[str, str] = {}
    needs: dict[str, list[Need]] = {}
    due: dict[str, bool] = {}
    for pool in request.pools:
        need = _need(services, caller, pool)
        if pool.job:
            job = _clean(pool.job)
            owners[job] = _clean(pool.owner)
            due[job] = due.get(job, True) and pool.due
            needs.setdefault(job, []).append(need)
    if not queue.enabled:
        return EnqueueReply()
    key = guest_key(caller.name, request.guest)
    own = {
        record.name: entry.seconds
        for entry in request.end_times[:MOST]
        if (record := _own_record(state, key, entry.partition)) is not None
    }
    now = state.now()
    end_times = {name: now + seconds for name, seconds in own.items() if 0 < seconds < MAX_DURATION}
    jobs = [FirstJob(key, job, owners[job], tuple(needs[job]), due[job], now) for job in needs]
    queue.enqueue(key, jobs, end_times)
    services.waiting.line.start_ready()
    places = [
        KeptPlace(
            cluster=pool.cluster,
            allocation=pool.allocation,
            job=job,
            devices=[
                (block.domain, block.offset + place)
                for block in goal.blocks
                for place in range(block.size)
            ],
            offered=is_offered,
        )
        for pool in request.pools
        for job, goal, is_offered in queue.places(key, (pool.cluster, pool.allocation))
    ]
    return EnqueueReply(sharing=True, places=places)


def _need(services: Services, caller: Caller, pool: PoolHead) -> Need:
    """What a job needs of a pool. Raises InvalidRequest, NotFound, Denied."""
    state = services.state
    sizes = sorted(pool.sizes, reverse=True)
    if len(sizes) > BLOCKS or any(size < 1 or size.bit_count() != 1 for size in sizes):
        raise InvalidRequest(
            f"a job of {sizes[:8]} devices does not consist of blocks",
            operation=_ENQUEUE,
            would_work=f"use at most {BLOCKS} sizes, each a power of two",
        )
    if bool(sizes) != bool(pool.job):
        raise InvalidRequest("a job has sizes, and sizes have a job", operation=_ENQUEUE)
    spec = PartitionSpec(name="", size=1, cluster=pool.cluster, allocation=pool.allocation)
    request = services.users.kept_to_grants(caller, CreateRequest(spec=spec))
    request = kept_out(state, caller, request)
    assert isinstance(request, CreateRequest)
    state.inventory.candidates(pool.cluster, request.spec.allocation, _ENQUEUE)
    return Need(pool.cluster, request.spec.allocation, tuple(sizes))


def _own_record(state: ControllerState, key: str, partition: str) -> PartitionRecord | None:
    entry = state.partitions.get(partition)
    record = entry.record if entry is not None else None
    return record if record is not None and record.guest == key else None


def _check_guest(guest: str, operation: str) -> None:
    if len(guest) > LONGEST_GUEST or not guest.isprintable():
        raise InvalidRequest(
            "the guest's name is too long or not printable",
            operation=operation,
            would_work=f"use at most {LONGEST_GUEST} printable characters",
        )


async def list_jobs(services: Services, caller: Caller, request: ListRequest) -> JobList:
    """The jobs that wait, by scheduler."""
    views.check_filters(services.state, request, "list jobs")
    page = ListPage[JobInfo](request)
    behind = _behind(request.page_token)
    for name, job in services.reported.jobs(services.state.now()):
        if (name, job.place) <= behind or not (
            services.state.sight.waiter(caller, job.owner)
            and request.cluster in ("", job.cluster)
            and request.allocation in ("", job.allocation)
        ):
            continue
        if page.full:
            break
        page.add(f"{job.place}/{name}", _with_place(services, name, job))
    return JobList(jobs=page.items, next_page_token=page.token)


def _with_place(services: Services, scheduler: str, job: JobInfo) -> JobInfo:
    """A job with what the server keeps for it. scheduler: its `guest_key`."""
    state = services.state
    places = services.waiting.line.guest_queue.places_of_job(scheduler, f"job {job.id}")
    if not places:
        return job
    starts_at = max(place.goal.starts_at for place in places)
    return msgspec.structs.replace(
        job,
        reserved=sum(place.reserved for place in places),
        estimate=max(0.0, starts_at - state.now()),
    )


def _short(job: JobInfo, scheduler: str, place: int) -> JobInfo:
    texts = {name: _clean(getattr(job, name)) for name in ("id", "owner", "asked", "needs")}
    return msgspec.structs.replace(
        job, scheduler=scheduler, place=place, reserved=0, estimate=0.0, **texts
    )


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_WORDS])


def _behind(token: str) -> tuple[str, int]:
    place, _, name = token.partition("/")
    if not token:
        return "", 0
    if not (place.isdecimal() and len(place) < 10):
        raise bad_token(token)
    return name, int(place)
