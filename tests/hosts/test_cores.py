"""The cores of a host, from hwloc's XML and from /sys, and what a cpuset leaves of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwright.hosts import (
    Cores,
    CpuCore,
    cores_of_sys,
    cores_of_xml,
    read_cores,
    read_list,
    write_list,
)
from tests.hosts.topologies import xml


@pytest.mark.parametrize("version", [1, 2])
def test_two_nodes_with_two_threads_a_core(version: int) -> None:
    assert cores_of_xml(xml(2, 1, 2, threads=2, version=version)) == Cores(
        (
            CpuCore(0, 0, (0, 4)),
            CpuCore(0, 0, (1, 5)),
            CpuCore(1, 1, (2, 6)),
            CpuCore(1, 1, (3, 7)),
        ),
        memory=(0, 1),
    )


def test_node_numbers_beyond_a_word_of_the_mask() -> None:
    found = cores_of_xml(xml(1, 40, 1))
    assert found is not None
    assert found.nodes == tuple(range(40))


@pytest.mark.parametrize(
    "text", ["", "no xml", "<topology/>", '<a><object type="Core" os_index="x"/></a>']
)
def test_what_is_no_topology(text: str) -> None:
    assert cores_of_xml(text) is None


def test_hardware_threads_without_cores_are_cores() -> None:
    text = '<a><object type="PU" os_index="0"/><object type="PU" os_index="1"/></a>'
    assert cores_of_xml(text) == Cores((CpuCore(0, 0, (0,)), CpuCore(0, 0, (1,))))


def test_within_a_cpuset() -> None:
    host = cores_of_xml(xml(2, 1, 2, threads=2))
    assert host is not None
    assert host.within({1, 2, 6}, {1}) == Cores((CpuCore(0, 0, (1,)), CpuCore(1, 1, (2, 6))), (1,))


def write_sys(root: Path, *, name: str = "core_cpus_list", numa: bool = True) -> None:
    """Two sockets of two cores with two threads; thread 7 is offline; node 2 has no cores."""
    cpu = root / "sys/devices/system/cpu"
    for number in range(8):
        topology = cpu / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / name).write_text(f"{number % 4},{number % 4 + 4}\n")
        (topology / "physical_package_id").write_text(f"{number % 4 // 2}\n")
    (cpu / "online").write_text("0-6\n")
    if numa:
        node = root / "sys/devices/system/node"
        for number, cpus in enumerate(("0-1,4-5", "2-3,6", "")):
            (node / f"node{number}").mkdir(parents=True)
            (node / f"node{number}" / "cpulist").write_text(f"{cpus}\n")
        (node / "online").write_text("0-2\n")
        (node / "has_memory").write_text("0-2\n")


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_sys(tmp_path: Path, name: str) -> None:
    write_sys(tmp_path, name=name)
    cores = (
        CpuCore(0, 0, (0, 4)),
        CpuCore(0, 0, (1, 5)),
        CpuCore(1, 1, (2, 6)),
        CpuCore(1, 1, (3,)),
    )
    assert cores_of_sys(str(tmp_path)) == Cores(cores, (0, 1, 2))


def test_sys_of_a_kernel_without_numa(tmp_path: Path) -> None:
    write_sys(tmp_path, numa=False)
    found = cores_of_sys(str(tmp_path))
    assert found is not None
    assert found.nodes == found.memory == (0,)


def test_sys_that_tells_nothing_leads_to_lstopo(tmp_path: Path) -> None:
    assert cores_of_sys(str(tmp_path)) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text("Mems_allowed_list:\t1\n")
    environ = {"PATH": str(tmp_path / "bin")}
    assert read_cores(environ, str(tmp_path)) is None
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "lstopo"
    (tmp_path / "host.xml").write_text(xml(2, 1, 64))
    program.write_text(f"#!/bin/sh\nexec /bin/cat {tmp_path}/host.xml\n")
    program.chmod(0o755)
    found = read_cores(environ, str(tmp_path))
    assert found is not None
    assert found.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert found.memory == (1,)


def test_this_host_within_an_affinity() -> None:
    """For real: a process that is bound to one hardware thread sees one core."""
    one = min(os.sched_getaffinity(0))
    code = "import os; from podwright.hosts import read_cores; print(read_cores(os.environ).cpus)"
    bound = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{one}}}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert bound.stdout == f"({one},)\n"


def test_lists() -> None:
    assert read_list("0-3,8,10-11\n") == [0, 1, 2, 3, 8, 10, 11]
    assert write_list([11, 0, 1, 2, 3, 8, 10]) == "0-3,8,10-11"
    assert read_list("") == []
