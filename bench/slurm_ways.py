"""The documented ways beside a plain Slurm, in a short form: each on a cluster of its own.

The jobs are the same `true` in both. Under host mapping a job has its host for itself, so it is
held against plain jobs that have. Ways take turns with plain, the best of each counts. Needs root
and Slurm (`make test-outer` installs it).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial

from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.ways import MappingLab, SharedLab, WayLab

from bench import Figures, figure
from bench._slurm_load import array, loose, restart, timed, undone

JOBS, TASKS = 60, 40
ROUNDS = 2


def _static() -> WayLab:
    made = {f"s4-{k}": 4 for k in range(1, 17)}
    return WayLab("static", made=made, nodes=4, cpus=32, patience=20.0)


#: Way -> its cluster, what a job asks for there, what a plain one asks for, how many run at once.
WAYS: dict[str, tuple[Callable[[], NativeLab], list[str], list[str], int]] = {
    "plugin": (
        partial(NativeLab, preset="pod256", nodes=4, cpus=32, configure=["--mode", "plugin"]),
        ["--ipus=4"],
        [],
        64,
    ),
    "shared": (
        partial(SharedLab, nodes=4, cpus=32, patience=20.0),
        ["--ipus=1"],
        [],
        64,
    ),
    "static": (_static, ["--gres=vipu:4"], [], 16),
    "host_mapping": (
        partial(MappingLab, nodes=4, cpus=32, patience=20.0),
        ["-N1"],
        ["-N1", "--exclusive"],
        4,
    ),
}


def run() -> Figures:
    """Seconds of each way and of plain, and the share of plain's pace."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        print("bench slurm_ways: needs root and Slurm", file=sys.stderr)
        return
    for way, (make, asks, plainly, at_once) in WAYS.items():
        took: dict[tuple[str, str], list[float]] = {}
        with make() as lab:
            for _ in range(ROUNDS):
                with undone(lab):
                    _measure(lab, took, "plain", plainly)
                restart(lab)
                _measure(lab, took, way, asks)
                lab.wait_free()
        for kind, count in (("loose", JOBS), ("array", TASKS)):
            best, without = min(took[way, kind]), min(took["plain", kind])
            yield figure(
                f"slurm.{kind}_{way}",
                best,
                "s",
                jobs=count,
                at_once=at_once,
                plain=round(without, 3),
                of_plain=round(without / best, 3),
            )


def _measure(
    lab: NativeLab, took: dict[tuple[str, str], list[float]], way: str, options: list[str]
) -> None:
    for kind, count, load in (("loose", JOBS, loose), ("array", TASKS, array)):
        seconds = timed(lab, count, partial(load, lab, count, options)).seconds
        took.setdefault((way, kind), []).append(seconds)
