"""Reads what the kernel knows about a node's GPUs, from /proc, /sys and its log. Changes nothing.

Every path lies below `root_folder`, so that a folder of files can stand for a machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from podwright.gpu.health._kernel_log import is_relevant

_MAX_LOG_BYTES = 16 << 20
_MAKERS = {"0x10de": "nvidia", "0x1002": "amd"}
#: Classes of PCI: displays, 3D controllers, other displays, accelerators.
_GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
#: Drivers that hand a device to a guest, or only show a console.
_OTHER_DRIVERS = ("vfio", "pci-stub", "pciback", "nouveau", "simpledrm", "radeon")


class PciGpu(NamedTuple):
    """A GPU that PCI shows. apart: why the vendor's driver need not show it; empty: it must."""

    bus: str
    maker: str
    apart: str = ""


class Link(NamedTuple):
    """The link of a PCI device, as it is and as it could be. speed: GT/s. 0: not known."""

    width: int = 0
    widest: int = 0
    speed: float = 0.0
    fastest: float = 0.0


def read(file_path: str) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        with open(file_path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def log_records(root_folder: str = "/") -> list[str] | None:
    """The records of the kernel's log that may be about GPUs. None: the log may not be read."""
    try:
        descriptor = os.open(os.path.join(root_folder, "dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return list(_kernel_log_lines(descriptor))
    finally:
        os.close(descriptor)


def _kernel_log_lines(log_descriptor: int) -> Iterator[str]:
    """Yield lines of the log. The kernel returns one record per read; a plain file has many
    lines.
    """
    bytes_left = _MAX_LOG_BYTES
    partial_line = b""
    while bytes_left > 0:
        try:
            read_bytes = os.read(log_descriptor, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:  # records were overwritten; the next read goes on after them
            continue
        except OSError:
            break
        if not read_bytes:
            break
        bytes_left -= len(read_bytes)
        *complete_lines, partial_line = (partial_line + read_bytes).split(b"\n")
        yield from (
            kmsg_line.decode(errors="replace")
            for kmsg_line in complete_lines
            if is_relevant(kmsg_line)
        )
    if is_relevant(partial_line):
        yield partial_line.decode(errors="replace")


def link(pci_address: str, root_folder: str = "/") -> Link:
    """The link of a PCI device."""
    device_folder = os.path.join(root_folder, "sys/bus/pci/devices", pci_address)

    def number(attribute_file: str) -> float:
        number_match = re.match(r"[\d.]+", read(os.path.join(device_folder, attribute_file)))
        return float(number_match[0]) if number_match else 0.0

    return Link(
        int(number("current_link_width")),
        int(number("max_link_width")),
        number("current_link_speed"),
        number("max_link_speed"),
    )


def pci_gpus(root_folder: str = "/") -> tuple[PciGpu, ...]:
    """The GPUs of NVIDIA and AMD that the kernel lists as PCI devices."""
    devices_folder = os.path.join(root_folder, "sys/bus/pci/devices")
    return tuple(
        gpu for bus in names(devices_folder) if (gpu := _pci_gpu(bus, devices_folder, root_folder))
    )


def _pci_gpu(bus: str, devices_folder: str, root_folder: str) -> PciGpu | None:
    folder = os.path.join(devices_folder, bus)
    maker = _MAKERS.get(read(os.path.join(folder, "vendor")).strip())
    pci_class = read(os.path.join(folder, "class")).strip()[:6]
    if not maker or pci_class not in _GPU_CLASSES:
        return None
    driver = os.path.basename(os.path.realpath(os.path.join(folder, "driver")))
    override = read(os.path.join(folder, "driver_override")).strip()
    proc_file = os.path.join(root_folder, "proc/driver/nvidia/gpus", bus, "information")
    apart = ""
    if driver.startswith(_OTHER_DRIVERS):
        apart = f"the driver {driver} has it"
    elif override not in ("", "(null)"):
        apart = f"it is reserved for the driver {override}"
    elif os.path.exists(os.path.join(folder, "physfn")):
        apart = "it is a part of another one, for guests"
    elif pci_class == "0x0300" and read(os.path.join(folder, "boot_vga")).strip() == "1":
        apart = "it is the node's display"
    elif re.search(r"Excluded:\s*Yes", read(proc_file)):
        apart = "the driver was told to leave it out"
    return PciGpu(bus, maker, apart)


def names(listed_folder: str) -> list[str]:
    """The names in a folder; empty where the folder does not exist."""
    try:
        return sorted(os.listdir(listed_folder))
    except OSError:
        return []
