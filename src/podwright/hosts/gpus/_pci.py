"""The place of a PCI device, from /sys: NUMA node, near cores, and paths to other devices."""

from __future__ import annotations

import os
import re

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def short_pci_address(address: str) -> str:
    """Return a PCI address in the kernel's form: `00000000:1B:00.0` is `0000:1b:00.0`."""
    domain, _, function = address.strip().lower().partition(":")
    return f"{int(domain, 16):04x}:{function}"


def pci_folder(pci_address: str, root_folder: str = "/") -> str:
    """Return the resolved folder of a device; empty where the kernel knows none."""
    link = os.path.join(root_folder, "sys/bus/pci/devices", pci_address)
    return os.path.realpath(link) if os.path.exists(link) else ""


def numa_node(pci_device_folder: str) -> int:
    """Return the NUMA node, or -1."""
    try:
        return int(read_line(os.path.join(pci_device_folder, "numa_node")) or -1)
    except ValueError:
        return -1


def near_cpus(pci_device_folder: str) -> str:
    """Return the hardware threads near to a device, as a list; empty where it is not known."""
    return read_line(os.path.join(pci_device_folder, "local_cpulist"))


def pci_path(first_folder: str, other_folder: str) -> str:
    """Return the path between two resolved folders, one of PATHS."""
    if not first_folder or not other_folder:
        return "SYS"
    if first_folder == other_folder:
        return "X"
    first_parts, other_parts = _pci_path_parts(first_folder), _pci_path_parts(other_folder)
    common_parts = 0
    while (
        common_parts < min(len(first_parts), len(other_parts))
        and first_parts[common_parts] == other_parts[common_parts]
    ):
        common_parts += 1
    if common_parts > 1:  # below the same root port
        return "PIX" if max(len(first_parts), len(other_parts)) - common_parts <= 2 else "PXB"
    if common_parts == 1:
        return "PHB"
    return "NODE" if numa_node(first_folder) == numa_node(other_folder) >= 0 else "SYS"


def _pci_path_parts(pci_device_folder: str) -> list[str]:
    """Return the root complex, the bridges and the device, in this order."""
    return [
        part
        for part in pci_device_folder.split(os.sep)
        if (part.startswith("pci") and ":" in part) or _PCI_ADDRESS.fullmatch(part)
    ]


def read_line(file_path: str) -> str:
    """Return the first line of a file; empty where it cannot be read."""
    try:
        with open(file_path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""
