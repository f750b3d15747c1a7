"""The latest time at which a block of a pod is free, by the time limits of the jobs in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.guests.shared import PodPlaces
from podwright.guests.slurm.service import Listed
from podwright.guests.slurm.service._pod_holdings import job_of
from podwright.placement.buddy_blocks import block
from podwright.wire import DeviceInfo


def soonest(
    devices: Sequence[DeviceInfo], size: int, jobs: Mapping[int, Listed]
) -> tuple[str | None, list[int]]:
    """Return when the block of `size` devices that comes free first is free at the latest, and the
    jobs in it.

    The time is text that sorts. "" means now, and None that no block comes free when jobs end.
    """
    places = PodPlaces(devices)
    bits_by_job: dict[int, int] = {}
    unusable_bits = 0
    for device in devices:
        device_bit = 1 << places.place(device)
        job = job_of(device.partition) if device.partition else None
        if job is not None and device.state != "DOWN":
            bits_by_job[job] = bits_by_job.get(job, 0) | device_bit
        elif device.state not in ("FREE", "RESETTING"):
            unusable_bits |= device_bit
    earliest: tuple[str, list[int]] | None = None
    block_order = size.bit_length() - 1
    for block_start in range(0, places.capacity.bit_length(), size):
        block_bits = block(block_start, block_order)
        if block_bits & ~places.capacity or block_bits & unusable_bits:
            continue
        occupying_jobs = [job for job, job_bits in bits_by_job.items() if job_bits & block_bits]
        free_time = max(
            (jobs[job].end if job in jobs else "" for job in occupying_jobs), default=""
        )
        if earliest is None or (free_time, len(occupying_jobs)) < (earliest[0], len(earliest[1])):
            earliest = free_time, sorted(occupying_jobs)
    return earliest or (None, [])
