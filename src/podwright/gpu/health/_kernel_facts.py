"""Reads what the kernel knows about a node's health, from /proc, /sys and the kernel's log. Changes
nothing.

Every path lies below `root_folder`, so that a folder of files can stand for a machine.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

#: Network file systems. A server that does not answer hangs every process that uses them.
REMOTE_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "wekafs", "9p", "afs")
)
_XID_PATTERN = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
#: The error of an NVSwitch: NVIDIA's Fabric Manager user guide, "NVSwitch SXid errors".
_SXID_PATTERN = re.compile(r"nvidia-nvswitch(\d+): SXid \(PCI:[0-9a-fA-F:.]+\): (\d+), (.*)")
#: The driver was loaded again. Errors that it reported before no longer count.
_DRIVER_LOADED_PATTERN = re.compile(
    r"NVRM: loading NVIDIA|nvidia: module .* loaded|NVRM: nvidia module loaded"
)
_MAX_LOG_BYTES = 16 << 20
_CLOCK_UNSYNCHRONISED_BIT = 0x40  # STA_UNSYNC, linux/timex.h


class XidEvent(NamedTuple):
    """An XID of the kernel's log. bus: PCI address. at: seconds since the machine started."""

    bus: str
    number: int
    at: float


class SwitchEvent(NamedTuple):
    """An SXid of the kernel's log. switch: its number. severity: `Fatal` or `Non-fatal`; a line
    with other words continues the one before. text: the message. at: seconds since the machine
    started.
    """

    switch: int
    number: int
    severity: str
    text: str
    at: float


class Link(NamedTuple):
    """The link of a PCI device, as it is and as it could be. speed: GT/s. 0: not known."""

    width: int = 0
    widest: int = 0
    speed: float = 0.0
    fastest: float = 0.0


class Mount(NamedTuple):
    """A file system that is mounted."""

    path: str
    kind: str
    options: tuple[str, ...]


class KernelClock(NamedTuple):
    """synchronised: None if the kernel does not report it. error: the largest possible one, in
    seconds.
    """

    synchronised: bool | None = None
    error: float = 0.0


def read(file_path: str) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        with open(file_path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def xids(root_folder: str = "/") -> tuple[list[XidEvent], list[SwitchEvent]] | None:
    """Return the XIDs of GPUs and SXids of switches since the driver was loaded.

    None: the log may not be read.
    """
    try:
        log_descriptor = os.open(os.path.join(root_folder, "dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    gpu_events: list[XidEvent] = []
    switch_events: list[SwitchEvent] = []
    try:
        for kmsg_line in _kernel_log_lines(log_descriptor):
            record_header, _, record_text = kmsg_line.partition(";")
            header_fields = record_header.split(",")
            logged_at = (
                int(header_fields[2]) / 1e6
                if len(header_fields) > 2 and header_fields[2].isdigit()
                else 0.0
            )
            if _DRIVER_LOADED_PATTERN.search(record_text):
                gpu_events.clear()
                switch_events.clear()
            elif match := _XID_PATTERN.search(record_text):
                gpu_events.append(XidEvent(_kernel_pci_address(match[1]), int(match[2]), logged_at))
            elif match := _SXID_PATTERN.search(record_text):
                severity, _, message = match[3].partition(", ")
                switch_event = SwitchEvent(
                    int(match[1]), int(match[2]), severity, message.strip(), logged_at
                )
                if severity in ("Fatal", "Non-fatal"):
                    switch_events.append(switch_event)
    finally:
        os.close(log_descriptor)
    return gpu_events, switch_events


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
            if _may_be_driver_line(kmsg_line)
        )
    if _may_be_driver_line(partial_line):
        yield partial_line.decode(errors="replace")


def _may_be_driver_line(line: bytes) -> bool:
    """Return whether a line may be the driver's; most of a log's thousands are not."""
    return b"NVRM" in line or b"nvidia" in line


def _kernel_pci_address(pci_address: str) -> str:
    """Return `0000:3b:00` and `0000:3B:00.0` in the kernel's form."""
    pci_address = pci_address.lower()
    return pci_address if "." in pci_address else f"{pci_address}.0"


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


def mounts(root_folder: str = "/") -> tuple[Mount, ...]:
    """Return the mounted file systems, the last one of each path."""
    mounts_by_path = {}
    for mounts_line in read(os.path.join(root_folder, "proc/self/mounts")).splitlines():
        mount_fields = mounts_line.split()
        if len(mount_fields) >= 4:
            mount_path = re.sub(
                r"\\([0-7]{3})", lambda octal_match: chr(int(octal_match[1], 8)), mount_fields[1]
            )
            mounts_by_path[mount_path] = Mount(
                mount_path, mount_fields[2], tuple(mount_fields[3].split(","))
            )
    return tuple(mounts_by_path.values())


def memory(root_folder: str = "/") -> dict[str, int]:
    """The values of /proc/meminfo by name, in KiB."""
    kib_by_name = {}
    for meminfo_line in read(os.path.join(root_folder, "proc/meminfo")).splitlines():
        field_name, _, value_text = meminfo_line.partition(":")
        value_words = value_text.split()
        if value_words and value_words[0].isdigit():
            kib_by_name[field_name] = int(value_words[0])
    return kib_by_name


def memory_errors(root_folder: str = "/") -> int:
    """Uncorrected errors of the host's memory since the node started (EDAC)."""
    edac_folder = os.path.join(root_folder, "sys/devices/system/edac/mc")
    error_count = 0
    for controller_name in names(edac_folder):
        count_text = read(os.path.join(edac_folder, controller_name, "ue_count")).strip()
        error_count += int(count_text) if count_text.isdigit() else 0
    return error_count


def bad_disks(root_folder: str = "/") -> dict[str, str]:
    """NVMe controllers that are not live and RAIDs that lack a disk, each with its state."""
    states_by_disk = {}
    for device_name in names(os.path.join(root_folder, "sys/class/nvme")):
        controller_state = read(
            os.path.join(root_folder, "sys/class/nvme", device_name, "state")
        ).strip()
        if controller_state and controller_state != "live":
            states_by_disk[device_name] = controller_state
    for device_name in names(os.path.join(root_folder, "sys/block")):
        missing_disks = read(
            os.path.join(root_folder, "sys/block", device_name, "md/degraded")
        ).strip()
        if missing_disks.isdigit() and int(missing_disks):
            states_by_disk[device_name] = f"misses {missing_disks} disks"
    return states_by_disk


def names(listed_folder: str) -> list[str]:
    """The names in a folder; empty where the folder does not exist."""
    try:
        return sorted(os.listdir(listed_folder))
    except OSError:
        return []


def programs(root_folder: str = "/") -> dict[int, str]:
    """The running processes by pid, with the first 15 letters of their names."""
    proc_folder = os.path.join(root_folder, "proc")
    return {
        int(pid): program_name
        for pid in names(proc_folder)
        if pid.isdigit() and (program_name := read(os.path.join(proc_folder, pid, "comm")).strip())
    }


def job_of(pid: int, running_programs: dict[int, str], root_folder: str = "/") -> str:
    """The Slurm job of a process, found by its cgroup or by a slurmstepd above it; empty for
    none."""
    proc_folder = os.path.join(root_folder, "proc")
    if cgroup_match := re.search(
        r"/job_(\d+)", read(os.path.join(proc_folder, str(pid), "cgroup"))
    ):
        return cgroup_match[1]
    ancestor_pid, seen_pids = pid, set[int]()
    while ancestor_pid > 1 and ancestor_pid not in seen_pids:
        seen_pids.add(ancestor_pid)
        if running_programs.get(ancestor_pid, "").startswith("slurmstepd"):
            process_environ = read(os.path.join(proc_folder, str(pid), "environ"))
            job_id_match = re.search(r"(?:^|\0)SLURM_JOB_ID=(\d+)", process_environ)
            return job_id_match[1] if job_id_match else "?"
        stat_fields = (
            read(os.path.join(proc_folder, str(ancestor_pid), "stat")).rpartition(")")[2].split()
        )
        ancestor_pid = int(stat_fields[1]) if len(stat_fields) > 1 else 0
    return ""


def clock() -> KernelClock:
    """How far this clock may be off, as the kernel records it for time daemons (adjtimex)."""

    class Timex(ctypes.Structure):
        _fields_ = (
            ("modes", ctypes.c_uint),
            *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
            ("status", ctypes.c_int),
            *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance")),
            ("rest", ctypes.c_char * 256),
        )

    try:
        timex_struct = Timex()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.adjtimex(ctypes.byref(timex_struct)) < 0:
            return KernelClock()
    except (OSError, AttributeError):
        return KernelClock()
    return KernelClock(
        not timex_struct.status & _CLOCK_UNSYNCHRONISED_BIT, timex_struct.maxerror / 1e6
    )
