"""What native mode costs on each Slurm that we test: trivial jobs with devices and without.

`slurm_jobs:newest` is one release alone (oldest, middle, newest). Plain and native take turns on
one cluster, so that whatever else the machine does hits both, and the best turn of each counts.
Needs root and Slurm (`make test-outer` installs it).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.outer.lab import ALICE, LabError, poll
from tests.outer.lab import release as find_release
from tests.outer.slurm.native import NativeLab

from bench import Figures, figure
from bench._slurm_load import array, loose, restart, timed, undone

RELEASES = ("oldest", "middle", "newest")
JOBS, TASKS = 300, 200
TURNS = 2
STARTS = 15
#: Of plain Slurm's pace, at least.
LOOSE, ARRAY = 0.6, 0.5
#: Seconds more for `srun`, where no burst buffer stands between.
LATENCY = 0.3
DEVICES = ["--ipus=4"]
PARAMS = {"nodes": 4, "cpus": 32, "devices": 256}


def run(release: str = "") -> Figures:
    """`srun`, loose jobs and an array beside plain, on every release or on one."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        print("bench slurm_jobs: needs root and Slurm", file=sys.stderr)
        return
    for name in [release] if release else RELEASES:
        slurm = find_release(name)
        version = "{}.{:02}".format(*slurm.version)
        with NativeLab(preset="pod256", nodes=4, cpus=32, release=slurm) as lab:
            for one in (*latency(lab), *_jobs(lab)):
                yield {**one, "params": {"slurm": version, **one["params"]}}


def _jobs(lab: NativeLab) -> Figures:
    took: dict[tuple[str, str], list[float]] = {}
    for _ in range(TURNS):
        for way, set_up in (("plain", undone), ("native", native)):
            options = DEVICES if way == "native" else []
            with set_up(lab):
                for kind, count, load in (("loose", JOBS, loose), ("array", TASKS, array)):
                    seconds = timed(lab, count, partial(load, lab, count, options))
                    took.setdefault((kind, way), []).append(seconds)
    for kind, count, least in (("loose", JOBS, LOOSE), ("array", TASKS, ARRAY)):
        plain, ours = min(took[kind, "plain"]), min(took[kind, "native"])
        spent = {"plain_s": round(plain, 2), "native_s": round(ours, 2)}
        yield figure(f"slurm.{kind}", plain / ours, "of plain, at least", limit=least, jobs=count,
                     **spent, turns=TURNS, **PARAMS)  # fmt: skip


def latency(lab: NativeLab) -> Figures:
    """srun with devices and without, by turns, on the idle cluster."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(STARTS):
        for devices, found in times.items():
            start = time.perf_counter()
            done = lab.run("srun", "-n1", *(DEVICES if devices else []), "true", user=ALICE)
            found.append(time.perf_counter() - start)
            if done.returncode:
                raise LabError(done.stderr)
            lab.wait_free()
    plain, with_devices = (statistics.median(times[devices]) for devices in (False, True))
    yield figure("slurm.srun_plain", plain, "s", runs=STARTS)
    yield figure("slurm.srun", with_devices, "s", runs=STARTS)
    yield figure("slurm.srun_more", with_devices - plain, "s", limit=LATENCY, runs=STARTS)


@contextmanager
def native(lab: NativeLab) -> Iterator[None]:
    """What the lab was set up with, and a slurmctld that has no jobs."""
    restart(lab)
    poll("the reservation", lambda: "podwright" in lab.run("scontrol", "show", "res").stdout)
    yield
    lab.wait_free()
