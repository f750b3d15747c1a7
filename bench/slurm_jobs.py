"""What native mode costs on each Slurm that we test: trivial jobs with devices and without.

`slurm_jobs:newest` is one release alone (oldest, middle, newest). Four ways take turns on one
cluster, so that whatever else the machine does hits all, and the best turn of each counts: plain
Slurm, Slurm with `/bin/true` as both hooks, ours without `--ipus`, and ours with it. On a loaded
machine read the processor time of a job instead, hop by hop (`_slurm_load._spent`).
Needs root and Slurm (`make test-outer` installs it).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import NamedTuple

from tests.outer.lab import ALICE, LabError, poll
from tests.outer.lab import release as find_release
from tests.outer.slurm.native import NativeLab

from bench import Figures, figure
from bench._slurm_load import Timed, array, loose, restart, timed, true_hooks, undone

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


class Variant(NamedTuple):
    """How the cluster is set up for a turn, and the options of its jobs."""

    name: str
    set_up: Callable[[NativeLab], AbstractContextManager[None]]
    options: Sequence[str] = ()


def _jobs(lab: NativeLab) -> Figures:
    """Loose jobs and an array in four variants, by turns. The difference between two variants is
    what one part costs: any hook (true_hooks), our hooks (no_ipus), devices (native)."""
    variants = (
        Variant("plain", undone),
        Variant("true_hooks", true_hooks),
        Variant("no_ipus", native),
        Variant("native", native, DEVICES),
    )
    times: dict[tuple[str, str], list[Timed]] = {}
    for _ in range(TURNS):
        for variant in variants:
            with variant.set_up(lab):
                for kind, count, load in (("loose", JOBS, loose), ("array", TASKS, array)):
                    turn = timed(lab, count, partial(load, lab, count, variant.options))
                    times.setdefault((kind, variant.name), []).append(turn)
    for kind, count, least in (("loose", JOBS, LOOSE), ("array", TASKS, ARRAY)):
        turns = {variant.name: times[kind, variant.name] for variant in variants}
        best = {name: min(turn.seconds for turn in found) for name, found in turns.items()}
        spent = {f"{name}_s": round(seconds, 2) for name, seconds in best.items()}
        of_plain = {
            f"{name}_of_plain": round(best["plain"] / best[name], 2)
            for name in ("true_hooks", "no_ipus")
        }
        yield figure(f"slurm.{kind}", best["plain"] / best["native"], "of plain, at least",
                     limit=least, jobs=count, **spent, **of_plain, turns=TURNS,
                     **PARAMS)  # fmt: skip
        for name, found in turns.items():
            hops = min((turn.hops for turn in found), key=lambda hops: sum(hops.values()))
            columns = {hop: round(ms, 2) for hop, ms in hops.items()}
            yield figure(f"slurm.{kind}.processor.{name}", round(sum(hops.values()), 2), "ms a job",
                         jobs=count, **columns)  # fmt: skip


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
