"""What a job waits for, and until when at most: `vipu explain --job`, from what Slurm and the
server tell anybody. Pure but for the asking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.client import Client
from podwright.slurm.service._blocks import block
from podwright.slurm.service._book import job_of
from podwright.slurm.service._commands import Slurm
from podwright.slurm.service._pods import Line, Site
from podwright.slurm.service._queue import Listed, listed
from podwright.wire import DeviceInfo, Explanation, NotFound


async def explained(number: int, slurm: Slurm, client: Client, site: Site) -> Explanation:
    """A job in words. Raises NotFound, Unavailable."""
    jobs = await listed(slurm)
    job = jobs.get(number)
    if job is None:
        raise NotFound(f"Slurm knows no job {number}", would_work="squeue -a lists them")
    asked = f"job {number}"
    reason = f" ({job.reason})" if job.reason not in ("", "None") else ""
    lines = [f"Slurm says {job.state}{reason}"]
    wants = job.wants(site.pods)
    if wants is None:
        return Explanation(asked=asked, problem="it asked for no devices", lines=lines)
    pod, size, _ = wants
    devices = client.list_devices(cluster=pod.cluster, allocation=pod.allocation)
    mine = sum(device.partition == f"slurm_{number}" for device in devices)
    if mine:
        lines.append(f"partition slurm_{number} holds {mine} devices of {pod.type}")
        return Explanation(asked=asked, problem="it has its devices", lines=lines, starts_now=True)
    if job.state != "PENDING":
        return Explanation(asked=asked, problem=f"it holds no devices of {pod.type}", lines=lines)
    free = sum(device.state == "FREE" for device in devices)
    end, holders = soonest(devices, size, jobs)
    problem = f"it waits for {size} devices of {pod.type} that lie together; {free} are free"
    if end == "":
        problem = f"{size} devices of {pod.type} are free for it: it waits for nodes or its turn"
    elif end is None:
        lines.append(f"no block of {size} comes free by itself: machines are away, or others' stay")
    elif end[0].isdigit():
        lines.append(f"{size} are free together at {end} at the latest, when {_end(holders)}")
    else:
        lines.append(f"{size} are free together when {_end(holders)}: no time limit says when")
    if job.comment:
        lines.append(f"its comment: {job.comment}")
    return Explanation(asked=asked, problem=problem, lines=lines, starts_now=end == "")


def soonest(
    devices: Sequence[DeviceInfo], size: int, jobs: Mapping[int, Listed]
) -> tuple[str | None, list[int]]:
    """When the block of `size` that is free first is free at the latest, as text that sorts, and
    the jobs in it. Empty text: now. None: no block gets free by the end of jobs."""
    line = Line(devices)
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


def _end(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"job {numbers[0]} ends"
    return f"jobs {', '.join(map(str, numbers))} end"
