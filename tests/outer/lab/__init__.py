"""Labs: real Slurm clusters and small networks of hosts on one machine, leaving no trace.

A lab owns a folder under /var/tmp, its ports, its MUNGE key and its processes; nothing global is
touched, so several labs run at once and a machine that has a Slurm of its own is not disturbed.
"""

from ._accounts import Accounts
from ._folder import LabError, poll, sweep_dead_labs, written_at
from ._hosts import HostsLab
from ._places import ALICE, BOB, Here, Inside, Place, Root
from ._release import Release, moved_on, release
from ._slurm import Job, SlurmLab

__all__ = [
    "ALICE",
    "BOB",
    "Accounts",
    "Here",
    "HostsLab",
    "Inside",
    "Job",
    "LabError",
    "Place",
    "Release",
    "Root",
    "SlurmLab",
    "moved_on",
    "poll",
    "release",
    "sweep_dead_labs",
    "written_at",
]
