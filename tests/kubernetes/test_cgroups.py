"""The hierarchies of control groups of a machine, according to its kernel."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.lab._cgroups import Hierarchy, hierarchies


def test_groups_of_both_versions_are_found() -> None:
    one = (
        "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
        "31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
    )
    two = "33 24 0:29 / /sys/fs/cgroup{} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    own = [
        Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), "cpu,cpuacct"),
        Hierarchy(Path("/sys/fs/cgroup/systemd"), "none,name=systemd"),
    ]
    assert hierarchies(one) == own
    assert hierarchies(one + two.format("/unified")) == own
    assert hierarchies(two.format("")) == [Hierarchy(Path("/sys/fs/cgroup"), "")]
    assert hierarchies("21 1 0:5 / /proc rw - proc proc rw\n") == []
