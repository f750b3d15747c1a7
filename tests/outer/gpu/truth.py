"""What a real Slurm grants for a request, read from inside the job by every task.

Nodes are laid out as shapes.py in tests/slurm/gpus/requests says; the GPUs are device files of a
major number that nothing serves. An outcome is one line, as outcome.py there writes it.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import stat

from tests.outer.lab import LabError, Release, SlurmLab
from tests.slurm.gpus.requests.outcome import line
from tests.slurm.gpus.requests.shapes import LAYOUTS, NODES, Layout

_TASK = re.compile(r"@(\d+) (\S+) \[(.*?)\]@")
_PROBE = 'echo "@$SLURM_PROCID $SLURMD_NODENAME [${CUDA_VISIBLE_DEVICES-unset}]@"'
_NAMES = itertools.count()


def gres(first: str, second: str) -> str:
    """gres.conf: two GPUs beside the first cores, and two beside the second."""
    line = "NodeName=n[1-4] Name=gpu Type=a100 File=@LAB@/gpu"
    lines = [f"{line}[0-1] Cores={first}", f"{line}[2-3] Cores={second}"]
    return "\n".join(["AutoDetect=off", *lines]) + "\n"


def make_gpus(lab: SlurmLab, count: int = 4) -> None:
    """The device files of GPUs."""
    for number in range(count):
        os.mknod(lab.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(240, number))


def gpu_lab(
    release: Release | None = None, layout: Layout = LAYOUTS["even"], **conf: str
) -> SlurmLab:
    """A lab, not yet started, whose nodes have GPUs."""
    lab = SlurmLab(
        nodes=NODES,
        cpus=layout.sockets * layout.cores,
        conf={"GresTypes": "gpu", **conf},
        files={"gres.conf": layout.gres_conf()},
        node_extra=layout.node(),
        release=release,
    )
    make_gpus(lab, sum(row.gpus for row in layout.rows))
    return lab


def granted(lab: SlurmLab, command: str, options: str, *, patience: float = 300) -> str:
    """What Slurm does with these options of srun, or of sbatch or salloc with a plain srun inside.

    patience: seconds after which a job that has not started, or an srun, is taken to wait for ever.
    """
    name = f"request{next(_NAMES)}"
    words = [*shlex.split(options), f"--job-name={name}"]
    file = lab.folder / "out" / f"{name}.out"
    if command == "srun":
        argv = ["srun", *words, "sh", "-c", _PROBE]
    elif command == "salloc":
        argv = ["salloc", *words, "srun", "sh", "-c", _PROBE]
    else:
        argv = ["sbatch", "--wait", *words, f"--output={file}", "--wrap", f"srun sh -c '{_PROBE}'"]
    try:
        said = lab.run(*argv, timeout=patience).stdout
    except LabError:
        waiting = "PENDING" in lab.ok("squeue", "--noheader", "--format=%T")
        lab.run("scancel", "--user=root")
        return "waits" if waiting else "hangs"
    if command == "sbatch" and file.exists():
        said = file.read_text()
    if "@" in said:
        return outcome(said)
    jobs = lab.ok("scontrol", "--oneliner", "show", "jobs")
    started = re.search(rf" JobName={name} .* NodeList=n", jobs)
    return "step" if started else "submit"


def outcome(text: str) -> str:
    """The outcome out of what the tasks printed."""
    tasks = sorted((int(rank), node, seen) for rank, node, seen in _TASK.findall(text))
    return line([(node, seen) for _, node, seen in tasks])
