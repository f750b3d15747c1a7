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

    def within(self, cpus: Collection[int], memory_nodes: Collection[int]) -> Cores:
        """Return the part of the cores within these hardware threads and NUMA nodes."""
        trimmed_cores = (
            core._replace(cpus=tuple(cpu for cpu in core.cpus if cpu in cpus))
            for core in self.cores
        )
        allowed_nodes = tuple(node for node in self.memory if node in memory_nodes)
        return Cores(tuple(core for core in trimmed_cores if core.cpus), allowed_nodes)


def read_cores(environ: Mapping[str, str], root: str = "/") -> Cores | None:
    """Return the cores of this host that this process may use; None where they are not known.

    A cpuset, a Slurm step or `taskset` around this process limits them.
    """
    cores = cores_of_sys(root)
    if cores is None:
        text = _lstopo_xml(environ)
        cores = cores_of_xml(text) if text else None
    if cores is None:
        return None
    with open(os.path.join(root, "proc/self/status"), encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    nodes = read_list(fields.get("Mems_allowed_list", "0"))
    return cores.within(os.sched_getaffinity(0), nodes)


def cores_of_sys(root: str = "/") -> Cores | None:
    """Return all online cores, as the kernel lists them; None where it does not."""
    system_folder = os.path.join(root, "sys/devices/system")
    try:
        online_cpus = set(read_list(_read_text_file(f"{system_folder}/cpu/online")))
        node_by_cpu, memory_nodes = _numa_nodes_by_cpu(system_folder)
        cores, seen_cpus = [], set[int]()
        for cpu in sorted(online_cpus):
            if cpu in seen_cpus:
                continue
            topology_folder = f"{system_folder}/cpu/cpu{cpu}/topology"
            threads = tuple(
                thread
                for thread in read_list(_read_sibling_cpus(topology_folder))
                if thread in online_cpus
            )
            seen_cpus.update(threads)
            socket = max(int(_read_text_file(f"{topology_folder}/physical_package_id")), 0)
            cores.append(CpuCore(socket, node_by_cpu.get(cpu, 0), threads))
    except (OSError, ValueError):
        return None
    return Cores(tuple(cores), memory_nodes)


def _numa_nodes_by_cpu(system_folder: str) -> tuple[dict[int, int], tuple[int, ...]]:
    """Return the node that each hardware thread is near to, and all nodes that have memory."""
    node_by_cpu: dict[int, int] = {}
    memory_nodes = []
    with contextlib.suppress(FileNotFoundError):  # a kernel without NUMA
        memory_nodes = read_list(_read_text_file(f"{system_folder}/node/online"))
        for node in memory_nodes:
            node_by_cpu |= dict.fromkeys(
                read_list(_read_text_file(f"{system_folder}/node/node{node}/cpulist")), node
            )
        memory_nodes = read_list(_read_text_file(f"{system_folder}/node/has_memory"))
    return node_by_cpu, tuple(memory_nodes) or (0,)


def _read_sibling_cpus(topology_folder: str) -> str:
    try:
        return _read_text_file(f"{topology_folder}/core_cpus_list")
    except FileNotFoundError:
        return _read_text_file(f"{topology_folder}/thread_siblings_list")  # before Linux 5.3


def cores_of_xml(xml_text: str) -> Cores | None:
    """Return the cores in hwloc's XML (`lstopo --of xml`, version 2 or 1); else None."""
    from xml.etree import ElementTree  # needed only where /sys has no answer

    try:
        root_element = ElementTree.fromstring(xml_text)
    except ElementTree.ParseError:
        return None
    cores: list[CpuCore] = []
    memory_nodes: set[int] = set()

    def walk(element: ElementTree.Element, socket: int) -> None:
        for child in element.findall("object"):
            object_type, index = child.get("type"), int(child.get("os_index", "0"))
            if object_type in ("NUMANode", "NUMANode_t"):
                memory_nodes.add(index)
            if object_type in ("Core", "PU"):
                threads = [
                    int(unit.get("os_index", "0"))
                    for unit in child.iter("object")
                    if unit.get("type") == "PU"
                ]
                near_nodes = _mask_bit_numbers(child.get("nodeset", "0x1")) or [0]
                cores.append(CpuCore(socket, near_nodes[0], tuple(sorted(threads))))
            else:
                walk(child, index if object_type in ("Package", "Socket") else socket)

    try:
        walk(root_element, 0)
    except ValueError:
        return None
    cores.sort(key=lambda core: core.cpus)
    return Cores(tuple(cores), tuple(sorted(memory_nodes)) or (0,)) if cores else None


def _mask_bit_numbers(mask_text: str) -> list[int]:
    """Return the numbers of the bits in hwloc's form: words of 32 bits, the highest first."""
    mask_words = [int(word, 16) if word else 0 for word in mask_text.split(",")]
    bits = 0
    for mask_word in mask_words:
        bits = bits << 32 | mask_word
    return [bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def _lstopo_xml(environ: Mapping[str, str]) -> str | None:
    from podwright.hosts._local_host_facts import find_program

    path = find_program("lstopo-no-graphics", environ) or find_program("lstopo", environ)
    if path is None:
        return None
    import subprocess

    command = [path, "--of", "xml", "--no-io"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lstopo_result = subprocess.run(
            command, capture_output=True, text=True, timeout=5, env=dict(environ)
        )
        return lstopo_result.stdout
    return None


def read_list(list_text: str) -> list[int]:
    """Return the numbers of a list such as `0-3,8,10-11`. Raises ValueError."""
    numbers: list[int] = []
    for number_range in filter(None, list_text.strip().split(",")):
        first, _, last = number_range.partition("-")
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
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def _read_text_file(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
