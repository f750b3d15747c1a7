"""What a real Slurm grants for a request, read from inside the job by every task.

Four nodes of two sockets with four cores and two GPUs each; the GPUs are device files of a major
number that nothing serves. An outcome is one line: `4 nodes: 0[0,1] 0[0,1] 1[0] …` lists each
task in the order of ranks as node[CUDA_VISIBLE_DEVICES]; otherwise it is the stage at which
Slurm refuses (tests/slurm_requests/outcome.py).
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path

from tests.outer.lab import SlurmLab
from tests.slurm_requests.outcome import line

_TASK = re.compile(r"@(\d+) (\S+) \[(.*?)\]@")
_PROBE = 'echo "@$SLURM_PROCID $SLURMD_NODENAME [${CUDA_VISIBLE_DEVICES-unset}]@"'


def gres(first: str, second: str) -> str:
    """gres.conf: two GPUs beside the first cores, and two beside the second."""
    line = "NodeName=n[1-4] Name=gpu Type=a100 File=@LAB@/gpu"
    lines = [f"{line}[0-1] Cores={first}", f"{line}[2-3] Cores={second}"]
    return "\n".join(["AutoDetect=off", *lines]) + "\n"


def make_gpus(lab: SlurmLab) -> None:
    """The device files of four GPUs."""
    for number in range(4):
        os.mknod(lab.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(240, number))


def gpu_lab(release: Path | None = None, **conf: str) -> SlurmLab:
    """A lab, not yet started, whose nodes have GPUs."""
    lab = SlurmLab(
        nodes=4,
        cpus=8,
        conf={"GresTypes": "gpu", **conf},
        files={"gres.conf": gres("0-3", "4-7")},
        node_extra="Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 Gres=gpu:a100:4",
        release=release,
    )
    make_gpus(lab)
    return lab


def granted(lab: SlurmLab, command: str, options: str) -> str:
    """What Slurm does with these options of srun, or of salloc with a plain srun inside."""
    argv = [command, *shlex.split(options)]
    argv += ["srun", "sh", "-c", _PROBE] if command != "srun" else ["sh", "-c", _PROBE]
    try:
        done = lab.run(*argv, timeout=6)
    except subprocess.TimeoutExpired:
        lab.run("scancel", "--user=root")
        return "waits"
    if "@" not in done.stdout:
        return "step" if "create step" in done.stderr else "submit"
    return outcome(done.stdout)


def outcome(text: str) -> str:
    """The outcome out of what the tasks printed."""
    tasks = sorted((int(rank), node, seen) for rank, node, seen in _TASK.findall(text))
    names = list(dict.fromkeys(node for _, node, _ in tasks))
    return line(len(names), [(names.index(node), seen) for _, node, seen in tasks])
