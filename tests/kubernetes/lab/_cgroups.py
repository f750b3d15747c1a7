"""A node's own part of every hierarchy of control groups that this machine has mounted.

The node sees only that part (a cgroup namespace), so its kubelet neither reads nor writes the
groups of others. The module handles version 1, version 2, and both at once.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tests.outer.lab import LabError, poll
from tests.outer.lab._folder import PARENT

PREFIX = "pwkube-"
#: In version 2 only groups without groups below them may hold processes.
_LEAF = "init"


@dataclass(frozen=True)
class Hierarchy:
    """at: its mount point. options: for `mount -t cgroup -o`; "" is version 2."""

    at: Path
    options: str


def hierarchies(mountinfo: str) -> list[Hierarchy]:
    """Return the mounted hierarchies in proc(5) mountinfo, each once; version 2 only if it is
    alone.
    """
    one: dict[str, Path] = {}
    two: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        at = Path(before.split()[4])
        if kind == "cgroup":
            chosen = [x for x in options.split(",") if x not in ("rw", "ro", "xattr")]
            chosen = [x for x in chosen if not x.startswith(("release_agent=", "clone_children"))]
            named = any(x.startswith("name=") for x in chosen)
            one.setdefault(",".join((["none"] if named else []) + chosen), at)
        elif kind == "cgroup2":
            two.setdefault("", at)
    return [Hierarchy(at, options) for options, at in (one or two).items()]


class NodeCgroups:
    """`made()` is called before the node boots, `remove()` when everything in it is dead."""

    def __init__(self, name: str) -> None:
        self._name = PREFIX + name
        self.all = hierarchies(Path("/proc/self/mountinfo").read_text())
        if not self.all:
            raise LabError("a node needs control groups, and none are mounted")

    def make(self) -> None:
        for hierarchy in self.all:
            group = hierarchy.at / self._name
            try:
                if not hierarchy.options:
                    _hand_down(hierarchy.at)
                group.mkdir(exist_ok=True)
                if not hierarchy.options:
                    (group / _LEAF).mkdir(exist_ok=True)
                if "cpuset" in hierarchy.options.split(","):
                    for what in ("cpuset.cpus", "cpuset.mems"):
                        (group / what).write_text((hierarchy.at / what).read_text())
            except OSError as error:
                raise LabError(f"a node needs control groups of its own: {error}") from error

    @property
    def joined_by_first(self) -> list[str]:
        """Return the files into which the node's first process writes 0, before its namespace is
        made.
        """
        return [f"{hierarchy.at}/{self._name}/cgroup.procs" for hierarchy in self.all]

    @property
    def joined(self) -> list[str]:
        """Return the files into which all processes write that enter the node later."""
        leaf = "" if self.all[0].options else f"{_LEAF}/"
        return [f"{hierarchy.at}/{self._name}/{leaf}cgroup.procs" for hierarchy in self.all]

    @property
    def mounts(self) -> str:
        """Return lines of shell that mount the hierarchies in the node, which sees only its own
        part.
        """
        bare = "umount --recursive --lazy /sys/fs/cgroup"
        if not self.all[0].options:
            lines = [bare, "mount -t cgroup2 none /sys/fs/cgroup"]
            lines.append(f"echo 0 >/sys/fs/cgroup/{_LEAF}/cgroup.procs")
            return "\n".join(lines)
        lines = [bare, "mount -t tmpfs none /sys/fs/cgroup"]
        for hierarchy in self.all:
            at = f"/sys/fs/cgroup/{hierarchy.at.name}"
            lines.append(f"mkdir {at}; mount -t cgroup -o {hierarchy.options} none {at}")
        return "\n".join(lines)

    def remove(self) -> None:
        for hierarchy in self.all:
            _remove(hierarchy.at / self._name)


def sweep() -> None:
    """Remove the groups of nodes whose lab has no folder any more."""
    for hierarchy in hierarchies(Path("/proc/self/mountinfo").read_text()):
        for group in hierarchy.at.glob(f"{PREFIX}*"):
            if not (PARENT / group.name.removeprefix(PREFIX).rpartition(".")[0]).exists():
                _remove(group)


def _hand_down(at: Path) -> None:
    """Let groups below a group of version 2 have its controllers."""
    there = (at / "cgroup.controllers").read_text().split()
    (at / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in there))


def _remove(group: Path) -> None:
    def gone() -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):  # a process in it has not quite ended
                os.rmdir(folder)
        return not group.exists()

    poll(f"end of {group}", gone)
