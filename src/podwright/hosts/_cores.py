"""The cores of a host, and the memory that is near them: values, read from /sys or from hwloc.

On Linux hwloc itself reads /sys. Reading it costs a millisecond, while `lstopo` costs ten to fifty,
so lstopo is run only where /sys does not have the answer. Numbers are the kernel's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class CpuCore(NamedTuple):
    """One core. cpus: its hardware threads. node: the NUMA node whose memory is nearest."""

    socket: int
    node: int
    cpus: tuple[int, ...]


class Cores(NamedTuple):
    """The cores of a host, in the order of their first hardware threads.

    memory: the NUMA nodes whose memory may be used, including nodes without cores.
    """

    cores: tuple[CpuCore, ...]
    memory: tuple[int, ...] = (0,)

    @property
    def cpus(self) -> tuple[int, ...]:
        """All hardware threads, ascending."""
        return tuple(sorted(cpu for core in self.cores for cpu in core.cpus))

    @property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that have cores, ascending."""
        return tuple(sorted({core.node for core in self.cores}))

    def within(self, cpus: Collection[int], memory: Collection[int]) -> Cores:
        """Return the part of the cores within these hardware threads and NUMA nodes."""
        left = (
            core._replace(cpus=tuple(cpu for cpu in core.cpus if cpu in cpus))
            for core in self.cores
        )
        nodes = tuple(node for node in self.memory if node in memory)
        return Cores(tuple(core for core in left if core.cpus), nodes)


def read_cores(environ: Mapping[str, str], root: str = "/") -> Cores | None:
    """Return the cores of this host that this process may use; None where they are not known.

    A cpuset, a Slurm step or `taskset` around this process limits them.
    """
    cores = cores_of_sys(root)
    if cores is None:
        text = _lstopo(environ)
        cores = cores_of_xml(text) if text else None
    if cores is None:
        return None
    with open(os.path.join(root, "proc/self/status"), encoding="ascii", errors="replace") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    memory = read_list(lines.get("Mems_allowed_list", "0"))
    return cores.within(os.sched_getaffinity(0), memory)


def cores_of_sys(root: str = "/") -> Cores | None:
    """Return all online cores, as the kernel lists them; None where it does not."""
    system = os.path.join(root, "sys/devices/system")
    try:
        online = set(read_list(_read(f"{system}/cpu/online")))
        near, memory = _nodes(system)
        cores, seen = [], set[int]()
        for cpu in sorted(online):
            if cpu in seen:
                continue
            folder = f"{system}/cpu/cpu{cpu}/topology"
            threads = tuple(t for t in read_list(_siblings(folder)) if t in online)
            seen.update(threads)
            socket = max(int(_read(f"{folder}/physical_package_id")), 0)
            cores.append(CpuCore(socket, near.get(cpu, 0), threads))
    except (OSError, ValueError):
        return None
    return Cores(tuple(cores), memory)


def _nodes(system: str) -> tuple[dict[int, int], tuple[int, ...]]:
    """Return the node that each hardware thread is near to, and all nodes that have memory."""
    near: dict[int, int] = {}
    memory = []
    with contextlib.suppress(FileNotFoundError):  # a kernel without NUMA
        memory = read_list(_read(f"{system}/node/online"))
        for node in memory:
            near |= dict.fromkeys(read_list(_read(f"{system}/node/node{node}/cpulist")), node)
        memory = read_list(_read(f"{system}/node/has_memory"))
    return near, tuple(memory) or (0,)


def _siblings(folder: str) -> str:
    try:
        return _read(f"{folder}/core_cpus_list")
    except FileNotFoundError:
        return _read(f"{folder}/thread_siblings_list")  # before Linux 5.3


def cores_of_xml(text: str) -> Cores | None:
    """Return the cores in hwloc's XML (`lstopo --of xml`, version 2 or 1); else None."""
    from xml.etree import ElementTree  # needed only where /sys has no answer

    try:
        top = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None
    cores: list[CpuCore] = []
    memory: set[int] = set()

    def walk(element: ElementTree.Element, socket: int) -> None:
        for child in element.findall("object"):
            kind, number = child.get("type"), int(child.get("os_index", "0"))
            if kind in ("NUMANode", "NUMANode_t"):
                memory.add(number)
            if kind in ("Core", "PU"):
                threads = [
                    int(unit.get("os_index", "0"))
                    for unit in child.iter("object")
                    if unit.get("type") == "PU"
                ]
                nodes = _mask(child.get("nodeset", "0x1")) or [0]
                cores.append(CpuCore(socket, nodes[0], tuple(sorted(threads))))
            else:
                walk(child, number if kind in ("Package", "Socket") else socket)

    try:
        walk(top, 0)
    except ValueError:
        return None
    cores.sort(key=lambda core: core.cpus)
    return Cores(tuple(cores), tuple(sorted(memory)) or (0,)) if cores else None


def _mask(text: str) -> list[int]:
    """Return the numbers of the bits in hwloc's form: words of 32 bits, the highest first."""
    words = [int(word, 16) if word else 0 for word in text.split(",")]
    bits = 0
    for word in words:
        bits = bits << 32 | word
    return [i for i in range(bits.bit_length()) if bits >> i & 1]


def _lstopo(environ: Mapping[str, str]) -> str | None:
    from podwright.hosts._local import find_program

    program = find_program("lstopo-no-graphics", environ) or find_program("lstopo", environ)
    if program is None:
        return None
    import subprocess

    command = [program, "--of", "xml", "--no-io"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, env=dict(environ))
        return done.stdout
    return None


def read_list(text: str) -> list[int]:
    """Return the numbers of a list such as `0-3,8,10-11`. Raises ValueError."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def write_list(numbers: Iterable[int]) -> str:
    """Return numbers as such a list."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
