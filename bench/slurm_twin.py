"""How long a twin of a controller takes: to start, to answer, to show what tasks see, to rehearse.

Each is the machine's own slurmctld. Its parts are `slurm_twin:cold`, `warm` (with tasks) and
`rehearse`; `warm` needs root and a lab, whose state is copied.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from bench import Figures, figure
from podwright.gpu.rehearse import Side, rehearse
from podwright.slurm.twin import (
    Granted,
    InstalledSlurm,
    SiteFiles,
    Submission,
    Twin,
    find_slurm,
    present_copied,
)
from podwright.slurm.twin_service import TwinQuestion
from podwright.slurm.twin_service._site_copy import SiteCopy
from podwright.slurm.twin_service._warm_twins import TwinSource, WarmTwins

SLURM_USER = 64030
COLD_LIMITS = {200: (4.0, 20), 2000: (10.0, 1)}  # seconds and runs, by nodes
WARM_LIMIT, TASKS_LIMIT, REHEARSE_LIMIT = 1.5, 5.0, 120.0
ASKED, PAUSE = 40, 3.0  # questions, and seconds between two
SUBMISSIONS = 300


def run(which: str = "") -> Figures:
    """The figures of one part, or of all."""
    parts: dict[str, Callable[[InstalledSlurm], Iterator[dict[str, object]]]] = {
        "cold": _cold,
        "warm": _warm,
        "rehearse": _rehearse,
    }
    slurm = find_slurm()
    if slurm is None:
        print("bench: slurm_twin needs slurmctld", file=sys.stderr)
        return
    for name, part in parts.items():
        if which in ("", name):
            yield from part(slurm)


def _site(nodes: int, memory: int = 60000) -> SiteFiles:
    return SiteFiles(
        slurm_conf="ClusterName=c\nSlurmctldHost=h\nSelectType=select/cons_tres\n"
        "SelectTypeParameters=CR_Core_Memory\nGresTypes=gpu\n"
        f"NodeName=g[1-{nodes}] Sockets=2 CoresPerSocket=32 RealMemory=500000 Gres=gpu:h100:8\n"
        f"PartitionName=gpu Nodes=ALL Default=YES DefMemPerGPU={memory} DefCpuPerGPU=8\n",
        gres_conf=f"NodeName=g[1-{nodes}] Name=gpu Type=h100 File=/dev/nvidia[0-7]\n",
    )


def _cold(slurm: InstalledSlurm) -> Iterator[dict[str, object]]:
    """From nothing to the first answer."""
    for nodes, (limit, runs) in COLD_LIMITS.items():
        used, times = _processor(), []
        for _ in range(runs):
            start = time.perf_counter()
            with Twin(_site(nodes), slurm) as twin:
                twin.ask(Submission("sbatch", ("--gpus=1",)))
                times.append(time.perf_counter() - start)
        p95 = sorted(times)[int(len(times) * 0.95)]
        yield _figure("slurm_twin_cold_p95", p95, used, slurm, limit=limit, nodes=nodes, runs=runs)


def _warm(slurm: InstalledSlurm) -> Iterator[dict[str, object]]:
    """Answers of twins that run with a copy of a lab's state, and what tasks see."""
    from tests.outer.gpu.truth import gpu_lab
    from tests.outer.lab import poll
    from tests.outer.twin.test_present import site_files, submit

    with gpu_lab() as lab:
        submit(lab, "--gpus=2")
        poll("the state", lambda: (lab.folder / "state" / "job_state").exists())
        present, site = present_copied(Path(lab.folder, "state")), site_files(lab)
        start, used = time.perf_counter(), _processor()
        with Twin(site, slurm, present) as twin:
            twin.ask(Submission("sbatch", ("--gpus=1",)))
            duration = time.perf_counter() - start
            task_times = []
            request = Submission("sbatch", ("--gpus-per-task=1", "-n2"))
            for _ in range(5):
                granted = twin.ask(request)
                begin = time.perf_counter()
                if isinstance(granted, Granted):
                    twin.tasks(request, granted)
                task_times.append(time.perf_counter() - begin)
        yield _figure(
            "slurm_twin_cold_copied", duration, used, slurm, limit=COLD_LIMITS[200][0], nodes=4
        )
        times = _asked_warm(SiteCopy(site, slurm.version, SLURM_USER, present=present), slurm)
        p95 = sorted(times)[int(len(times) * 0.95)]
        yield _figure(
            "slurm_twin_warm_p95", p95, used, slurm, limit=WARM_LIMIT, runs=ASKED, every=PAUSE
        )
        slowest = max(task_times)
        yield _figure("slurm_twin_tasks", slowest, used, slurm, limit=TASKS_LIMIT, runs=5)


def _asked_warm(copy: SiteCopy, slurm: InstalledSlurm) -> list[float]:
    """Seconds of questions to the service's twins, one each PAUSE seconds, while the state changes
    as it does on a busy cluster.
    """

    def start(site: SiteCopy, with_state: bool) -> Twin:
        return Twin(site.files, slurm, site.present if with_state else None).__enter__()

    def fits(before: SiteCopy, now: SiteCopy) -> bool:
        return before.files == now.files

    twins = WarmTwins(TwinSource(start, fits, slurm.release), time.monotonic)
    times = []
    try:
        twins.update(replace(copy, read_at=time.monotonic()))
        twins.ask(SLURM_USER, TwinQuestion("sbatch", ("--gpus=1",))).result(60)
        for count in range(ASKED):
            time.sleep(PAUSE)
            assert copy.present is not None
            state = {**copy.present.state, "changed": str(count).encode()}
            present = replace(copy.present, state=state)
            twins.update(replace(copy, present=present, read_at=time.monotonic()))
            begin = time.perf_counter()
            question = TwinQuestion("sbatch", (f"--gpus={count % 4 + 1}",))
            twins.ask(SLURM_USER, question).result(60)
            times.append(time.perf_counter() - begin)
    finally:
        twins.close(30)
    return times


def _rehearse(slurm: InstalledSlurm) -> Iterator[dict[str, object]]:
    """Submissions of which no two are alike, asked of today's files and of changed ones."""
    submissions = [
        (
            Submission("sbatch", (f"--gpus={n % 8 + 1}", f"--time={n + 1}", f"-c{n % 4 + 1}")),
            [str(n)],
        )
        for n in range(SUBMISSIONS)
    ]
    start, used = time.perf_counter(), _processor()
    rehearse(submissions, Side("today", _site(20), slurm), Side("new", _site(20, 30000), slurm))
    duration = time.perf_counter() - start
    yield _figure(
        "slurm_twin_rehearse", duration, used, slurm, limit=REHEARSE_LIMIT, submissions=SUBMISSIONS
    )


def _figure(
    name: str, value: float, since: float, slurm: InstalledSlurm, **more: object
) -> dict[str, object]:
    processor = round(_processor() - since, 2)
    load = round(os.getloadavg()[0], 1)
    return figure(name, value, "s", processor_s=processor, load=load, slurm=slurm.release, **more)  # type: ignore[arg-type]


def _processor() -> float:
    """Processor time of this process and of those that have ended below it, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
