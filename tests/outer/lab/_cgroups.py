"""Slurm's cgroups are the machine's, and named by node and job: two labs have the same names.

A lab whose Slurm uses them waits for its turn, and takes away what it and killed ones have left.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from ._folder import PARENT

_TURN = PARENT / "podwright-lab-cgroups.lock"
_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/*")


class CgroupTurn:
    """Held from its making to `end`, or the end of this process. nodes: the lab's."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._nodes = tuple(nodes)
        self._file = _TURN.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._remove()

    def end(self) -> None:
        """The lab's processes are gone."""
        self._remove()
        self._file.close()

    def _remove(self) -> None:
        for root in _ROOTS:
            for node in self._nodes:
                for top in Path("/").glob(f"{root[1:]}/slurm_{node}"):
                    for folder, _, _ in os.walk(top, topdown=False):
                        with contextlib.suppress(OSError):
                            os.rmdir(folder)
