"""How much longer poprun takes than srun to start four tasks in a job, each bound to its GPU.

Both run in one job on one node, in turns; the best of each counts, since the machine has other
things to do. Needs root and Slurm (`make test-outer` installs it); device files stand for GPUs.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path

from tests.outer.lab import HostsLab, SlurmLab

from bench import Figures, figure

RUNS = 15
#: Seconds that poprun may take beyond srun.
LIMIT = 0.15
_SCRIPT = """\
export PATH={path}:$PATH
cd {here}
timed() {{ local start=$EPOCHREALTIME; shift; "$@" >/dev/null 2>&1 || echo "failed $*"
    echo "$name ${{start/./}} ${{EPOCHREALTIME/./}}"; }}
for run in $(seq {runs}); do
    name=srun timed 0 srun --ntasks=4 --gpus-per-task=1 true
    name=poprun timed 0 {poprun} --launcher={launcher} --num-replicas=4 --num-instances=4 true
done
"""


def run() -> Figures:
    """Seconds that poprun takes beyond srun, without MPI and with it."""
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        print("bench slurm_poprun: needs root and Slurm", file=sys.stderr)
        return
    with HostsLab(["ctl", "n1"]) as hosts:
        lab = SlurmLab(
            cpus=8,
            conf={"GresTypes": "gpu"},
            files={"gres.conf": "AutoDetect=off\nName=gpu File=@LAB@/gpu[0-3]\n"},
            node_extra="Gres=gpu:4",
            hosts=hosts,
        )
        for number in range(4):
            os.mknod(lab.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(240, number))
        with lab:
            for launcher, limit in (("local", LIMIT), ("mpirun", None)):
                srun, poprun = _best(lab, launcher)
                yield figure(
                    f"slurm_poprun_{launcher}",
                    poprun - srun,
                    "s",
                    limit=limit,
                    srun=round(srun, 4),
                    poprun=round(poprun, 4),
                    tasks=4,
                    runs=RUNS,
                )


def _best(lab: SlurmLab, launcher: str) -> tuple[float, float]:
    script = _SCRIPT.format(
        path=Path(sys.executable).parent,
        here=Path(__file__).parents[1],
        runs=RUNS,
        poprun=f"{sys.executable} -P -m podwright.cli.poprun",
        launcher=launcher,
    )
    job = lab.submit(f"#!/bin/bash\n{script}", "--nodes=1", "--ntasks=4", "--gpus-per-node=4")
    lab.wait_over(job, seconds=300)
    took: dict[str, list[float]] = {"srun": [], "poprun": []}
    for line in (lab.folder / "out" / f"slurm-{job}.out").read_text().splitlines():
        name, *times = line.split()
        if name not in took:
            raise RuntimeError(line)
        took[name].append((int(times[1]) - int(times[0])) / 1e6)
    return min(took["srun"]), min(took["poprun"])
