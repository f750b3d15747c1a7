"""What to move, so that a request that fits by count fits by shape as well. Pure functions.

The place of the request's shape that is cheapest to empty is chosen. The cost of a move is the
number of devices times the seconds that the job loses. A job does not move if it cannot, if it was
asked twice within an hour, or if it has no other place meanwhile. Nothing moves at all where a
place would be free by itself before the moves have paid.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple, TypeVar

from podwright.placement.buddy_blocks import BuddyBlocks, block, every, fit, soonest

HOURLY_MOVE_LIMIT: Final = 2  #: how often one job may be asked to move within an hour
HOUR_SECONDS: Final = 3600.0
PLACES_TRIED: Final = 64  #: how many places are examined for where their jobs could go

H = TypeVar("H", bound=Hashable)


class BlockingJob(NamedTuple):
    """A job that occupies devices.

    size: number of its devices. seconds: what it loses by a move; infinite if it cannot be moved
    now.
    """

    size: int
    seconds: float


class MovePlan(NamedTuple):
    """A plan. devices: the block that becomes free, as bits.

    jobs: the jobs that move, each with the order of its block, in the order in which they are
    placed.
    """

    devices: int
    jobs: tuple[tuple[int, int], ...]


def may_be_asked(asked_at: Iterable[float], now: float) -> bool:
    """Return whether a job that was asked to move at these times may be asked again now."""
    return sum(request_time > now - HOUR_SECONDS for request_time in asked_at) < HOURLY_MOVE_LIMIT


def likely_end_time(announced_end: float, began_at: float, now: float) -> tuple[float, bool]:
    """Return when a job's devices may be free, and whether the job itself announced that time.

    announced_end: the announced end; 0 or infinite for none. Without an announcement, or after its
    time, the estimate is that the job lasts as long again as it has so far.
    """
    if now < announced_end < math.inf:
        return announced_end, True
    return now + max(1.0, now - began_at), False


def cheapest_places(
    occupants_by_place: Iterable[Mapping[H, int]],
    moves_by_job: Mapping[H, BlockingJob],
    worth_device_seconds: float,
) -> Iterator[tuple[int, list[H]]]:
    """Yield (index, jobs, the largest first) of places that are worth emptying, cheapest first.

    occupants_by_place: for each place, how many of its devices each job has. worth_device_seconds:
    device-seconds that are gained.
    """
    cost_by_job = {
        job: in_the_way.size * in_the_way.seconds for job, in_the_way in moves_by_job.items()
    }
    priced_places: list[tuple[float, int, Mapping[H, int]]] = []
    for index, occupants in enumerate(occupants_by_place):
        cost = sum(cost_by_job[job] for job in occupants)
        if occupants and cost < worth_device_seconds:
            priced_places.append((cost, index, occupants))
    for _, index, occupants in nsmallest(
        PLACES_TRIED, priced_places, key=lambda priced_place: priced_place[:2]
    ):
        yield index, sorted(occupants, key=lambda job: (-moves_by_job[job].size, job))


def plan_moves(
    blocks: BuddyBlocks,
    order: int,
    occupied_by_job: Mapping[int, tuple[int, float]],
    loss_by_job: Mapping[int, float],
    *,
    now: float,
    unusable_bits: int = 0,
) -> MovePlan | None:
    """Return the cheapest way to a free block of 2**order devices of a pod; None if none pays.

    blocks: what is free. occupied_by_job: the devices of each job, and its `likely_end_time`.
    loss_by_job: what a move loses, for each job that can be moved now. unusable_bits: devices that
    nobody can use.
    """
    moving_jobs: list[tuple[int, int]] = []
    usable_bits = blocks.capacity & ~unusable_bits
    for job, (job_bits, _) in occupied_by_job.items():
        if job in loss_by_job:
            moving_jobs.append((job, job_bits))
        else:
            usable_bits &= ~job_bits
    place_starts = _whole(usable_bits, order)
    occupied_counts: dict[int, dict[int, int]] = {}
    for job, job_bits in moving_jobs:
        for block_index in range(
            _lowest_device(job_bits) >> order, (job_bits.bit_length() - 1 >> order) + 1
        ):
            if place_starts >> (block_index << order) & 1:
                occupied_counts.setdefault(block_index, {})[job] = (
                    job_bits & block(block_index << order, order)
                ).bit_count()
    if not occupied_counts:
        return None  # this skips `soonest`, which takes longest
    block_indices = sorted(occupied_counts)
    moves_by_job = {
        job: BlockingJob(job_bits.bit_count(), loss_by_job[job]) for job, job_bits in moving_jobs
    }
    soonest_block = soonest(
        blocks.capacity, unusable_bits, occupied_by_job.values(), [order], first=now
    )
    free_at = max(
        (job_end for job_bits, job_end in occupied_by_job.values() if job_bits & soonest_block),
        default=now,
    )
    worth_device_seconds = (free_at - now) * (1 << order)
    for place_number, jobs in cheapest_places(
        [occupied_counts[index] for index in block_indices],
        moves_by_job,
        worth_device_seconds,
    ):
        block_index = block_indices[place_number]
        block_bits = block(block_index << order, order)
        if (blocks.free & block_bits).bit_count() + sum(
            occupied_counts[block_index].values()
        ) < 1 << order:
            continue  # the rest belongs to a job that is ending
        job_orders = [(moves_by_job[job].size - 1).bit_length() for job in jobs]
        if _do_blocks_fit(blocks, block_bits, job_orders):
            return MovePlan(block_bits, tuple(zip(jobs, job_orders, strict=True)))
    return None


def _whole(device_bits: int, order: int) -> int:
    """Return the starts of the blocks of 2**order that lie in these devices, as bits."""
    for smaller_order in range(order):
        device_bits &= device_bits >> (1 << smaller_order)
    return device_bits & every(order, device_bits.bit_length())


def _lowest_device(device_bits: int) -> int:
    return (device_bits & -device_bits).bit_length() - 1


def _do_blocks_fit(blocks: BuddyBlocks, excluded_bits: int, block_orders: Sequence[int]) -> bool:
    """Return whether blocks of these orders, the largest first, fit outside `excluded_bits`."""
    remaining_blocks = BuddyBlocks(blocks.capacity, shared_grid=blocks)
    remaining_blocks.free = blocks.free & ~excluded_bits
    return fit(remaining_blocks, block_orders)
