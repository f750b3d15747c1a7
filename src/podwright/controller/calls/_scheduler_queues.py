"""Jobs that wait in the queues of schedulers, shown beside the controller's own queue.

Schedulers report them. They are not stored, and a scheduler that has reported nothing for five
minutes has none. `Enqueue` names the jobs for which devices are to be kept (`_guest_first_jobs`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from podwright.controller.calls import _object_replies as views
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._list_pages import ListPage, bad_page_token
from podwright.controller.queue._guest_first_jobs import FirstJob, JobNeed
from podwright.controller.requests._allocation_access import restrict_to_open
from podwright.controller.requests._device_claims import MAX_DURATION_S
from podwright.controller.requests._reserve_devices import guest_key
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

MAX_JOBS: Final = 2000  #: jobs of a scheduler
AWAY: Final = 150.0  #: seconds without a report; a service reports each minute at least
MAX_POOLS: Final = 64  #: of one scheduler
BLOCKS: Final = 64  #: of one job in one pool
_ENQUEUE_ACTION: Final = "enqueue"
_DEFAULT_GUEST: Final = "slurm"  #: the guest that a report without a name is of
_MAX_TEXT_CHARS: Final = 300  #: characters
LONGEST_GUEST_NAME: Final = 64  #: characters of a scheduler's name


async def report_jobs(services: Services, caller: Caller, request: JobReport) -> Empty:
    """Take over a scheduler's queue. Raises InvalidRequest for more than it may have.

    Schedulers of one account are told apart by their guest's name. A name can replace no queue of
    another account, since the account is a part of the key.
    """
    _check_guest(request.guest, "report jobs")
    if len(request.jobs) > MAX_JOBS:
        raise InvalidRequest(
            f"a report of {len(request.jobs)} jobs is too long: {MAX_JOBS} jobs are shown",
            operation="report jobs",
            would_work=f"send the first {MAX_JOBS}",
        )
    state, guest_name = services.state, request.guest or _DEFAULT_GUEST
    jobs = [_cleaned_job(job, guest_name, place) for place, job in enumerate(request.jobs, 1)]
    if services.reported.report(guest_key(caller.name, guest_name), jobs, state.now()):
        state.journal.changes += 1
    return Empty()


async def enqueue(services: Services, caller: Caller, request: EnqueueRequest) -> EnqueueReply:
    """Take over a scheduler's first jobs, and return what is kept in its pools.

    Raises InvalidRequest, NotFound for an unknown cluster or allocation, Denied for a pool in which
    the scheduler may create nothing. Then nothing has changed.
    """
    state, guest_queue = services.state, services.waiting.line.guest_queue
    _check_guest(request.guest, _ENQUEUE_ACTION)
    if len(request.pools) > MAX_POOLS:
        raise InvalidRequest(
            f"{len(request.pools)} pools are too many",
            operation=_ENQUEUE_ACTION,
            would_work=f"send the first {MAX_POOLS}",
        )
    owner_by_job: dict[str, str] = {}
    needs_by_job: dict[str, list[JobNeed]] = {}
    due_by_job: dict[str, bool] = {}
    for pool_head in request.pools:
        need = _pool_need(services, caller, pool_head)
        if pool_head.job:
            job = _cleaned_text(pool_head.job)
            owner_by_job[job] = _cleaned_text(pool_head.owner)
            due_by_job[job] = due_by_job.get(job, True) and pool_head.due
            needs_by_job.setdefault(job, []).append(need)
    scheduler_key = guest_key(caller.name, request.guest)
    seconds_by_partition = {
        record.name: entry.seconds
        for entry in request.end_times[:MAX_JOBS]
        if (record := _own_record(state, scheduler_key, entry.partition)) is not None
    }
    now = state.now()
    end_times = {
        name: now + seconds
        for name, seconds in seconds_by_partition.items()
        if 0 < seconds < MAX_DURATION_S
    }
    first_jobs = [
        FirstJob(
            scheduler_key, job, owner_by_job[job], tuple(needs_by_job[job]), due_by_job[job], now
        )
        for job in needs_by_job
    ]
    guest_queue.enqueue(scheduler_key, first_jobs, end_times)
    services.waiting.line.start_ready()
    kept_places = [
        KeptPlace(
            cluster=head.cluster,
            allocation=head.allocation,
            job=job,
            devices=[
                (block.domain, block.offset + index)
                for block in goal.blocks
                for index in range(block.size)
            ],
            offered=is_offered,
        )
        for head in request.pools
        for job, goal, is_offered in guest_queue.places(
            scheduler_key, (head.cluster, head.allocation)
        )
    ]
    return EnqueueReply(sharing=True, places=kept_places)


def _pool_need(services: Services, caller: Caller, pool_head: PoolHead) -> JobNeed:
    """What a job needs of a pool. Raises InvalidRequest, NotFound, Denied."""
    state = services.state
    block_sizes = sorted(pool_head.sizes, reverse=True)
    if len(block_sizes) > BLOCKS or any(size < 1 or size.bit_count() != 1 for size in block_sizes):
        raise InvalidRequest(
            f"a job of {block_sizes[:8]} devices does not consist of blocks",
            operation=_ENQUEUE_ACTION,
            would_work=f"use at most {BLOCKS} sizes, each a power of two",
        )
    if bool(block_sizes) != bool(pool_head.job):
        raise InvalidRequest("a job has sizes, and sizes have a job", operation=_ENQUEUE_ACTION)
    spec = PartitionSpec(
        name="", size=1, cluster=pool_head.cluster, allocation=pool_head.allocation
    )
    create_request = services.users.kept_to_grants(caller, CreateRequest(spec=spec))
    create_request = restrict_to_open(state, caller, create_request)
    assert isinstance(create_request, CreateRequest)
    state.inventory.candidates(pool_head.cluster, create_request.spec.allocation, _ENQUEUE_ACTION)
    return JobNeed(pool_head.cluster, create_request.spec.allocation, tuple(block_sizes))


def _own_record(
    state: ControllerState, scheduler_key: str, partition: str
) -> PartitionRecord | None:
    entry = state.partitions.get(partition)
    record = entry.record if entry is not None else None
    return record if record is not None and record.guest == scheduler_key else None


def _check_guest(guest_name: str, operation: str) -> None:
    if len(guest_name) > LONGEST_GUEST_NAME or not guest_name.isprintable():
        raise InvalidRequest(
            "the guest's name is too long or not printable",
            operation=operation,
            would_work=f"use at most {LONGEST_GUEST_NAME} printable characters",
        )


async def list_jobs(services: Services, caller: Caller, request: ListRequest) -> JobList:
    """The jobs that wait, by scheduler."""
    views.check_filters(services.state, request, "list jobs")
    page = ListPage[JobInfo](request)
    last_listed = _parse_page_token(request.page_token)
    for scheduler_key, job in services.reported.jobs(services.state.now()):
        if (scheduler_key, job.place) <= last_listed or not (
            services.state.sight.waiter(caller, job.owner)
            and request.cluster in ("", job.cluster)
            and request.allocation in ("", job.allocation)
        ):
            continue
        if page.full:
            break
        page.add(f"{job.place}/{scheduler_key}", _with_place(services, scheduler_key, job))
    return JobList(jobs=page.items, next_page_token=page.token)


def _with_place(services: Services, scheduler_key: str, job: JobInfo) -> JobInfo:
    """A job with what the server keeps for it. scheduler_key: its `guest_key`."""
    state = services.state
    job_places = services.waiting.line.guest_queue.places_of_job(scheduler_key, f"job {job.id}")
    if not job_places:
        return job
    starts_at = max(kept_place.goal.starts_at for kept_place in job_places)
    return msgspec.structs.replace(
        job,
        reserved=sum(kept_place.reserved for kept_place in job_places),
        estimate=max(0.0, starts_at - state.now()),
    )


def _cleaned_job(job: JobInfo, guest_name: str, queue_place: int) -> JobInfo:
    fields = {
        field_name: _cleaned_text(getattr(job, field_name))
        for field_name in ("id", "owner", "asked", "needs")
    }
    return msgspec.structs.replace(
        job, scheduler=guest_name, place=queue_place, reserved=0, estimate=0.0, **fields
    )


def _cleaned_text(text: str) -> str:
    return "".join(
        character if character.isprintable() else "?" for character in text[:_MAX_TEXT_CHARS]
    )


def _parse_page_token(page_token: str) -> tuple[str, int]:
    text, _, key = page_token.partition("/")
    if not page_token:
        return "", 0
    if not (text.isdecimal() and len(text) < 10):
        raise bad_page_token(page_token)
    return key, int(text)
