"""A lab of four equal nodes with four GPUs each, two beside each socket.

The GPUs are device files of a major number that nothing serves.
"""

from __future__ import annotations

import os
import stat

from tests.outer.lab import Release, SlurmLab

GRES_CONF = """\
AutoDetect=off
NodeName=n[1-4] Name=gpu Type=a100 File=@LAB@/gpu[0-1] Cores=0-3
NodeName=n[1-4] Name=gpu Type=a100 File=@LAB@/gpu[2-3] Cores=4-7
"""
#: Of the line of the nodes in slurm.conf.
NODE = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=1 Gres=gpu:a100:4"


def make_gpus(lab: SlurmLab, count: int = 4) -> None:
    """The device files of GPUs."""
    for number in range(count):
        os.mknod(lab.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(240, number))


def gpu_lab(release: Release | None = None, *lines: str, **conf: str) -> SlurmLab:
    """The lab, not yet started. lines: more of slurm.conf."""
    lab = SlurmLab(
        nodes=4,
        cpus=8,
        conf={"GresTypes": "gpu", **conf},
        files={"gres.conf": GRES_CONF},
        node_extra=NODE,
        lines=lines,
        release=release,
    )
    make_gpus(lab)
    return lab
