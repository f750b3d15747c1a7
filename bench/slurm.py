"""What native mode costs a Slurm: the same trivial jobs on one cluster, set up in three ways.

plain: no devices, nothing of ours. empty: everything counted, hooks that do nothing. native: each
job has a partition of 4 devices of a pod that fits 64 of them. Ways take turns, and the best of
each counts, since the machine has other things to do. Needs root and Slurm (`make test-outer`
installs it).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.outer.slurm.native import NativeLab

from bench import Figures, figure
from bench._slurm_load import array, loose, timed, undone
from bench.slurm_jobs import ARRAY, DEVICES, JOBS, LOOSE, PARAMS, TASKS, latency, native

ROUNDS = 2
#: Times as long as beside the plain jobs, at most, for slurmctld to answer.
SINFO = 2.0
HOOKS = ("prolog-slurmctld", "epilog-slurmctld")


def run() -> Figures:
    """All figures of native mode."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        print("bench slurm: needs root and Slurm; make test-outer installs it", file=sys.stderr)
        return
    with NativeLab(preset="pod256", nodes=4, cpus=32) as lab:
        yield from latency(lab)
        ways = {"plain": undone, "empty": _empty, "native": native}
        took: dict[str, dict[str, list[float]]] = {w: {"loose": [], "array": []} for w in ways}
        looks: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, set_up in ways.items():
                options = [] if way == "plain" else DEVICES
                with set_up(lab), _sinfo(lab, looks[way]):
                    took[way]["loose"].append(
                        timed(lab, JOBS, partial(loose, lab, JOBS, options)).seconds
                    )
                    took[way]["array"].append(
                        timed(lab, TASKS, partial(array, lab, TASKS, options)).seconds
                    )
        waited = lab.state()["figures"]["waited"]
    for kind, count, least in (("loose", JOBS, LOOSE), ("array", TASKS, ARRAY)):
        plain = min(took["plain"][kind])
        for way in ways:
            best = min(took[way][kind])
            share = round(plain / best, 3)
            yield figure(f"slurm.{kind}_{way}", best, "s", jobs=count, of_plain=share)
        pace = plain / min(took["native"][kind])
        yield figure(f"slurm.{kind}", pace, "of plain, at least", limit=least, jobs=count, **PARAMS)
    yield figure("slurm.started_without_shape", waited, "jobs", limit=0)
    unharmed = SINFO * statistics.median(looks["plain"])
    for way, times in looks.items():
        middle, limit = statistics.median(times), None if way == "plain" else unharmed
        params = {"worst": round(max(times), 3), "looks": len(times)}
        yield figure(f"slurm.sinfo_{way}", middle, "s", limit=limit, **params)


# -- the three ways ------------------------------------------------------------------------------


@contextmanager
def _empty(lab: NativeLab) -> Iterator[None]:
    """The hooks' links show elsewhere for a while."""
    links = [lab.folder / "podwright" / name for name in HOOKS]
    targets = [os.readlink(link) for link in links]

    def point(to: list[str]) -> None:
        for link, target in zip(links, to, strict=True):
            link.unlink()
            link.symlink_to(target)

    with native(lab):
        point(["/bin/true"] * 2)
        yield
        point(targets)


@contextmanager
def _sinfo(lab: NativeLab, times: list[float]) -> Iterator[None]:
    """Asks slurmctld all the while how the nodes are, and notes how long that took."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.25):
            start = time.perf_counter()
            subprocess.run(
                ["sinfo", "-h"], env=lab.environment(), stdout=subprocess.DEVNULL, check=True
            )
            times.append(time.perf_counter() - start)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
