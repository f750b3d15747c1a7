"""When a block of a pod is free at the latest, by the time limits of the jobs in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.guests import PodPlaces
from podwright.placement.buddy_blocks import block
from podwright.slurm.pods.service import Listed
from podwright.slurm.pods.service._pod_book import job_of
from podwright.wire import DeviceInfo


def soonest(
    devices: Sequence[DeviceInfo], size: int, jobs: Mapping[int, Listed]
) -> tuple[str | None, list[int]]:
    """When the block of `size` that is free first is free at the latest, as text that sorts, and
    the jobs in it. Empty text: now. None: no block gets free by the end of jobs."""
    line = PodPlaces(devices)
    held: dict[int, int] = {}
    away = 0
    for device in devices:
        bit = 1 << line.place(device)
        job = job_of(device.partition) if device.partition else None
        if job is not None and device.state != "DOWN":
            held[job] = held.get(job, 0) | bit
        elif device.state not in ("FREE", "RESETTING"):
            away |= bit
    best: tuple[str, list[int]] | None = None
    order = size.bit_length() - 1
    for start in range(0, line.capacity.bit_length(), size):
        whole = block(start, order)
        if whole & ~line.capacity or whole & away:
            continue
        inside = [job for job, bits in held.items() if bits & whole]
        end = max((jobs[job].end if job in jobs else "" for job in inside), default="")
        if best is None or (end, len(inside)) < (best[0], len(best[1])):
            best = end, sorted(inside)
    return best or (None, [])
