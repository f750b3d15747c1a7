"""What a real Slurm grants for a request, read from inside the job by every task.

Four nodes of two sockets with four cores and two GPUs each; the GPUs are device files of a major
number that nothing serves. An outcome is one line: `4 nodes: 0[0,1] 0[0,1] 1[0] …` lists each
task in the order of ranks as node[CUDA_VISIBLE_DEVICES]; otherwise it is the stage at which
Slurm refuses.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

from podwright.slurm.requests import Grant, Refusal, Shape, explain, parse_request
from podwright.wire import PodwrightError
from tests.outer.lab import SlurmLab

SHAPE = Shape(nodes=4, sockets=2, cores_per_socket=4, gpus=4, kinds=("a100",), confined=False)
_TASK = re.compile(r"@(\d+) (\S+) \[(.*?)\]@")
_PROBE = 'echo "@$SLURM_PROCID $SLURMD_NODENAME [${CUDA_VISIBLE_DEVICES-unset}]@"'
_GRES = """\
AutoDetect=off
NodeName=n[1-4] Name=gpu Type=a100 File=@LAB@/gpu[0-1] Cores=0-3
NodeName=n[1-4] Name=gpu Type=a100 File=@LAB@/gpu[2-3] Cores=4-7
"""


def gpu_lab(release: Path | None = None, **conf: str) -> SlurmLab:
    """A lab, not yet started, whose nodes have GPUs."""
    lab = SlurmLab(
        nodes=4,
        cpus=8,
        conf={"GresTypes": "gpu", **conf},
        files={"gres.conf": _GRES},
        node_extra="Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 Gres=gpu:a100:4",
        release=release,
    )
    for number in range(4):
        os.mknod(lab.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(240, number))
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
    tasks = sorted((int(rank), node, text) for rank, node, text in _TASK.findall(done.stdout))
    if not tasks:
        return "step" if "create step" in done.stderr else "submit"
    names = list(dict.fromkeys(node for _, node, _ in tasks))
    return line(len(names), [(names.index(node), text) for _, node, text in tasks])


def line(nodes: int, tasks: list[tuple[int, str]]) -> str:
    """An outcome as one line."""
    return f"{nodes} nodes: " + " ".join(f"{node}[{text}]" for node, text in tasks)


def expected(command: str, options: str, shape: Shape = SHAPE, **more: Any) -> str:
    """What our rules say of the same."""
    try:
        answer = explain(parse_request(shlex.split(options), command), shape, **more)
    except PodwrightError:
        return "submit"
    if isinstance(answer, Refusal):
        return answer.stage
    assert isinstance(answer, Grant)
    used = {task.node for task in answer.tasks}
    texts = [(t.node, "unset" if t.variable is None else t.variable) for t in answer.tasks]
    return line(len(used), texts)
