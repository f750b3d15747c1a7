"""How far the simulation is from a real Slurm: the same jobs on both, and Slurm beside itself.

A run submits the jobs of a trace at their times, divided by 60, and writes down what Slurm made of
them. The simulation gets that record as it would get sacct's: submissions, run times, limits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import accumulate, combinations
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from podwright.replay import ReplayWay, SlurmModel, Trace, TraceJob, example, simulate
from tests.outer.lab import ALICE, Release, poll
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.ways import WayLab

FASTER = 60.0
#: Its multiples are spread evenly over every second.
GOLDEN = (5**0.5 - 1) / 2
#: What `native.SCHEDULER` sets, and room after five seconds, as 300 are divided by 60.
SLURM = SlurmModel(bf_interval=1.0, room_s=5.0, sweep_s=1.0)
STOCK = "static:8x4+2x16"
WAYS = {
    "native": ReplayWay("native", "native", 64),
    "static": ReplayWay(STOCK, "static", 64, stock=((8, 4), (2, 16))),
    "host-mapping": ReplayWay("host-mapping:4x16", "host-mapping", 64, stock=((4, 16),)),
}


class Run(NamedTuple):
    """What a real Slurm made of jobs, and its `turnaround`."""

    jobs: list[TraceJob]
    overhead_s: float


def workload(
    seed: int, count: int, way: str, *, load: float = 1.2, longest: float = 20.0
) -> list[TraceJob]:
    """Jobs of 5 to `longest` s, drawn from the example's months, that ask for `load` pods."""
    drawn: list[TraceJob] = []
    while len(drawn) < count:
        for job in example(seed + 1000 * len(drawn), devices=64, days=20).jobs():
            small = job.devices <= 16 or way != "static"
            if 5 <= job.runtime / FASTER <= longest and small and len(drawn) < count:
                drawn.append(job)
    area = sum(job.devices * job.runtime for job in drawn)
    first, last = drawn[0].submit, drawn[-1].submit
    times = sorted(job.submit % 86400 for job in drawn) if last < first else None
    moments = times or [job.submit for job in drawn]
    pace = area / 64 / load / max(1.0, moments[-1] - moments[0])
    if way == "host-mapping":
        pace *= 2.0  # whole hosts: half of what they hold is used
    return [
        job._replace(
            name=str(at),
            submit=(moment - moments[0]) * pace / FASTER,
            runtime=job.runtime / FASTER,
            devices=1 << (job.devices - 1).bit_length(),
            limit=max(1.0, -(-job.limit // FASTER // 60)) * 60,
            eligible=math.nan,
        )
        for at, (job, moment) in enumerate(zip(drawn, moments, strict=True))
    ]


def lab_of(way: str, release: Release) -> NativeLab:
    """A cluster with that way, and a memory long enough for a run."""
    conf = {"MinJobAge": "7200"}
    if way == "native":
        lab: NativeLab = _Native(
            configure=["--room-after", "5"], conf=conf, nodes=4, cpus=64, release=release
        )
    elif way == "static":
        made = {f"s4-{k}": 4 for k in range(8)} | {"s16-0": 16, "s16-1": 16}
        lab = _Way("static", made=made, conf=conf, nodes=4, cpus=64, release=release)
    else:
        rows = []
        for host in range(4):
            machines = ",".join(f"ag{4 * host + at}" for at in range(1, 5))
            rows.append(f"n{host + 1}:{machines}")
        mapping = "\n".join(rows) + "\n"
        lab = _Way("host-mapping", mapping=mapping, conf=conf, nodes=4, cpus=64, release=release)
    return lab


class _Fast:
    """The service looks every second, as time is 60 times faster."""

    folder: Path

    def configure(self, *words: str) -> str:
        said = super().configure(*words)  # type: ignore[misc]
        site = self.folder / "podwright" / "native.toml"
        if "--write" in words:
            site.write_text(site.read_text().replace("sweep_s = 10.0", "sweep_s = 1.0"))
        return str(said)


class _Native(_Fast, NativeLab):
    pass


class _Way(_Fast, WayLab):
    pass


def turnaround(lab: NativeLab, way: str, count: int = 96) -> float:
    """Seconds for which a job's devices are nobody's, at its end and the next one's beginning:
    what hooks and slurmctld need on this machine. As many jobs as fit at once, each of 2 to 6 s,
    in turn; so from when all devices are in use until the last begins, they are in use or between
    two jobs.

    slurmctld starts jobs once a second: jobs of whole seconds would all end just after it looked.
    So theirs end at all times of a second alike.
    """
    size, wide = {"native": (8, 8), "static": (4, 8), "host-mapping": (16, 4)}[way]
    ask = ["-o", "/dev/null", *_options(way, size)]
    lengths = [2 + 4 * (at * GOLDEN % 1) for at in range(count)]
    jobs = [lab.batch(f"sleep {one:.2f}", *ask, user=ALICE) for one in lengths]
    found = lab.wait_over(*jobs, seconds=600)
    times = [(_at(found[j].fields["StartTime"]), _at(found[j].fields["EndTime"])) for j in jobs]
    starts = sorted(start for start, _ in times)
    full, last = starts[wide - 1], starts[-1]
    busy = sum(max(0.0, min(end, last) - max(start, full)) for start, end in times)
    return max(0.0, (wide * (last - full) - busy) / (count - wide))


def _options(way: str, devices: int) -> list[str]:
    if way == "native":
        return ["-n1", f"--ipus={devices}"]
    if way == "static":
        return ["-n1", f"--gres=vipu:{4 if devices <= 4 else 16}"]
    hosts = -(-devices // 16)
    return [f"-N{hosts}", f"-n{hosts}"]


def record(lab: NativeLab, way: str, jobs: Sequence[TraceJob], *, count: int = 96) -> Run:
    """What a real Slurm makes of the jobs: when it began each, and how long they ran."""
    overhead = turnaround(lab, way, count)
    lab.write("out/wait.sh", "#!/bin/sh\nsleep $1\n")
    known: dict[int, TraceJob] = {}
    lock = threading.Lock()
    began = time.monotonic()

    def submit(mine: Sequence[TraceJob]) -> None:
        for job in mine:
            time.sleep(max(0.0, began + job.submit - time.monotonic()))
            words = ["sbatch", "--parsable", "-o", "/dev/null", f"-t{int(job.limit // 60)}"]
            words += [*_options(way, job.devices), "wait.sh", f"{job.runtime:.2f}"]
            said = poll("a submission", partial(_submitted, lab, words), seconds=120, every=0.5)
            with lock:
                known[int(said.partition(";")[0])] = job

    threads = [threading.Thread(target=submit, args=(jobs[at::3],)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(known) == len(jobs)
    time.sleep(5)
    found = lab.wait("all over", lambda now: all(now[j].over for j in known), seconds=1800)
    out = []
    for number, job in sorted(known.items()):  # Slurm's own order, where seconds are the same
        said = found[number].fields
        assert said["JobState"] == "COMPLETED", said
        start, end = _at(said["StartTime"]), _at(said["EndTime"])
        submitted = _at(said["SubmitTime"])
        out.append(job._replace(submit=submitted, start=start, runtime=end - start))
    return Run(sorted(out, key=lambda job: job.submit), overhead)


def _submitted(lab: NativeLab, words: Sequence[str]) -> str:
    """What sbatch says; empty where slurmctld was too busy to answer, and there is no job."""
    done = lab.run(*words, user=ALICE)
    return "" if done.returncode else done.stdout.strip()


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def compare(way: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Slurm beside itself, and the simulation of each run beside it.

    tau: the least of all pairs of Slurm's runs, and the mean of simulations with their runs. wait,
    used: of each run; spread: the largest difference of two of Slurm's runs, as a share of their
    mean; apart: the mean of the simulations beside the mean of the runs.
    """
    made = [simulated(way, run) for run in runs]
    pairs = [tau(one.jobs, other.jobs) for one, other in combinations(runs, 2)]
    found: dict[str, Any] = {
        "way": way,
        "jobs": len(runs[0].jobs),
        "overhead_s": [round(run.overhead_s, 2) for run in runs],
        "tau_itself": min(pairs, default=1.0),
        "tau": mean([tau(run.jobs, one) for run, one in zip(runs, made, strict=True)]),
    }
    for name, figure in (("wait_s", wait), ("used", used)):
        real = [figure(run.jobs) for run in runs]
        ours = [figure(one) for one in made]
        found[name] = {
            "slurm": real,
            "simulated": ours,
            "spread": (max(real) - min(real)) / mean(real),
            "apart": abs(mean(ours) / mean(real) - 1),
        }
    return found


def simulated(way: str, run: Run) -> list[TraceJob]:
    """The same jobs, as the simulation starts them."""
    trace = Trace("record", run.jobs)
    out = simulate(trace, WAYS[way].ground(), replace(SLURM, overhead_s=run.overhead_s))
    return [job._replace(start=out.start_times[at]) for at, job in enumerate(trace.jobs())]


def wait(jobs: Sequence[TraceJob]) -> float:
    """Seconds that jobs wait on average."""
    return mean([job.start - job.submit for job in jobs])


def used(jobs: Sequence[TraceJob]) -> float:
    """The share of the pod that they use, from the first submission to the last end."""
    first, last = min(j.submit for j in jobs), max(j.start + j.runtime for j in jobs)
    return sum(job.devices * job.runtime for job in jobs) / 64 / (last - first)


def most(jobs: Sequence[TraceJob]) -> int:
    """Devices in use at once, at most. Who ends at a moment makes room for who begins then."""
    steps = [(job.start, job.devices) for job in jobs]
    steps += [(job.start + job.runtime, -job.devices) for job in jobs]
    return max(accumulate(change for _, change in sorted(steps)))


def tau(one: Sequence[TraceJob], other: Sequence[TraceJob]) -> float:
    """How alike the order of two runs is: `tau_b` of their starts."""
    there = {job.name: job.start for job in other}
    return tau_b([(job.start, there[job.name]) for job in one])


def tau_b(starts: Sequence[tuple[float, float]], *, apart: float = 2.0) -> float:
    """Kendall's tau-b over pairs whose recorded (first) starts differ by more than `apart` s."""
    agree = against = ties = 0
    for (a, x), (b, y) in combinations(starts, 2):
        if abs(a - b) <= apart:
            continue
        product = (a - b) * (x - y)
        agree += product > 0
        against += product < 0
        ties += product == 0
    pairs = agree + against + ties
    return (agree - against) / ((pairs * (pairs - ties)) ** 0.5) if pairs > ties else 0.0
