"""The latest time at which a block of a pod is free, by the time limits of the jobs in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.guests.shared import PodPlaces
from podwright.guests.slurm.service import Listed
from podwright.guests.slurm.service._pod_book import job_of
from podwright.placement.buddy_blocks import block
from podwright.wire import DeviceInfo


def soonest(
    devices: Sequence[DeviceInfo], size: int, jobs: Mapping[int, Listed]
) -> tuple[str | None, list[int]]:
    """Return when the block of `size` devices that comes free first is free at the latest, and the
    jobs in it.

    The time is text that sorts. "" means now, and None that no block comes free when jobs end.
    """
    line = PodPlaces(devices)
    devices_of: dict[int, int] = {}
    unusable = 0
    for device in devices:
        bit = 1 << line.place(device)
        job = job_of(device.partition) if device.partition else None
        if job is not None and device.state != "DOWN":
            devices_of[job] = devices_of.get(job, 0) | bit
        elif device.state not in ("FREE", "RESETTING"):
            unusable |= bit
    best: tuple[str, list[int]] | None = None
    order = size.bit_length() - 1
    for start in range(0, line.capacity.bit_length(), size):
        target = block(start, order)
        if target & ~line.capacity or target & unusable:
            continue
        occupying_jobs = [job for job, bits in devices_of.items() if bits & target]
        end = max((jobs[job].end if job in jobs else "" for job in occupying_jobs), default="")
        if best is None or (end, len(occupying_jobs)) < (best[0], len(best[1])):
            best = end, sorted(occupying_jobs)
    return best or (None, [])
