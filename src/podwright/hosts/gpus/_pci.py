"""The place of a PCI device, from /sys: NUMA node, near cores, and paths to other devices."""

from __future__ import annotations

import os
import re

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def short_bus(address: str) -> str:
    """Return a PCI address in the kernel's form: `00000000:1B:00.0` is `0000:1b:00.0`."""
    domain, _, rest = address.strip().lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def pci_folder(bus: str, root: str = "/") -> str:
    """Return the resolved folder of a device; empty where the kernel knows none."""
    link = os.path.join(root, "sys/bus/pci/devices", bus)
    return os.path.realpath(link) if os.path.exists(link) else ""


def numa_node(folder: str) -> int:
    """Return the NUMA node, or -1."""
    try:
        return int(read_line(os.path.join(folder, "numa_node")) or -1)
    except ValueError:
        return -1


def near_cpus(folder: str) -> str:
    """Return the hardware threads near to a device, as a list; empty where it is not known."""
    return read_line(os.path.join(folder, "local_cpulist"))


def pci_path(first: str, other: str) -> str:
    """Return the path between two resolved folders, one of PATHS."""
    if not first or not other:
        return "SYS"
    if first == other:
        return "X"
    a, b = _parts(first), _parts(other)
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        common += 1
    if common > 1:  # below the same root port
        return "PIX" if max(len(a), len(b)) - common <= 2 else "PXB"
    if common == 1:
        return "PHB"
    return "NODE" if numa_node(first) == numa_node(other) >= 0 else "SYS"


def _parts(folder: str) -> list[str]:
    """Return the root complex, the bridges and the device, in this order."""
    return [
        part
        for part in folder.split(os.sep)
        if (part.startswith("pci") and ":" in part) or _ADDRESS.fullmatch(part)
    ]


def read_line(path: str) -> str:
    """Return the first line of a file; empty where it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
