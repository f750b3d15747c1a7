"""Reads what the kernel knows about a node's health, from /proc, /sys and the kernel's log. Changes
nothing.

Every path lies below `root`, so that a folder of files can stand for a machine.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

#: Network file systems. A server that does not answer hangs every process that uses them.
REMOTE = frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "wekafs", "9p", "afs")
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
#: The error of an NVSwitch: NVIDIA's Fabric Manager user guide, "NVSwitch SXid errors".
_SXID = re.compile(r"nvidia-nvswitch(\d+): SXid \(PCI:[0-9a-fA-F:.]+\): (\d+), (.*)")
#: The driver was loaded again. Errors that it reported before no longer count.
_LOADED = re.compile(r"NVRM: loading NVIDIA|nvidia: module .* loaded|NVRM: nvidia module loaded")
_LOG_BYTES = 16 << 20
_UNSYNC = 0x40  # STA_UNSYNC, linux/timex.h


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


def read(path: str) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def xids(root: str = "/") -> tuple[list[XidEvent], list[SwitchEvent]] | None:
    """Return the XIDs of GPUs and SXids of switches since the driver was loaded.

    None: the log may not be read.
    """
    try:
        number = os.open(os.path.join(root, "dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    gpu_events: list[XidEvent] = []
    switches: list[SwitchEvent] = []
    try:
        for line in _records(number):
            head, _, text = line.partition(";")
            stamp = head.split(",")
            logged_at = int(stamp[2]) / 1e6 if len(stamp) > 2 and stamp[2].isdigit() else 0.0
            if _LOADED.search(text):
                gpu_events.clear()
                switches.clear()
            elif match := _XID.search(text):
                gpu_events.append(XidEvent(_bus(match[1]), int(match[2]), logged_at))
            elif match := _SXID.search(text):
                severity, _, rest = match[3].partition(", ")
                event = SwitchEvent(int(match[1]), int(match[2]), severity, rest.strip(), logged_at)
                if severity in ("Fatal", "Non-fatal"):
                    switches.append(event)
    finally:
        os.close(number)
    return gpu_events, switches


def _records(number: int) -> Iterator[str]:
    """Yield lines of the log. The kernel returns one record per read; a plain file has many
    lines.
    """
    left = _LOG_BYTES
    rest = b""
    while left > 0:
        try:
            data = os.read(number, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:  # records were overwritten; the next read goes on after them
            continue
        except OSError:
            break
        if not data:
            break
        left -= len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines if _is_kernel_line(line))
    if _is_kernel_line(rest):
        yield rest.decode(errors="replace")


def _is_kernel_line(line: bytes) -> bool:
    """Return whether a line may be the driver's; most of a log's thousands are not."""
    return b"NVRM" in line or b"nvidia" in line


def _bus(text: str) -> str:
    """Return `0000:3b:00` and `0000:3B:00.0` in the kernel's form."""
    text = text.lower()
    return text if "." in text else f"{text}.0"


def link(bus: str, root: str = "/") -> Link:
    """The link of a PCI device."""
    folder = os.path.join(root, "sys/bus/pci/devices", bus)

    def number(name: str) -> float:
        match = re.match(r"[\d.]+", read(os.path.join(folder, name)))
        return float(match[0]) if match else 0.0

    return Link(
        int(number("current_link_width")),
        int(number("max_link_width")),
        number("current_link_speed"),
        number("max_link_speed"),
    )


def mounts(root: str = "/") -> tuple[Mount, ...]:
    """Return the mounted file systems, the last one of each path."""
    by_path = {}
    for line in read(os.path.join(root, "proc/self/mounts")).splitlines():
        words = line.split()
        if len(words) >= 4:
            path = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[1])
            by_path[path] = Mount(path, words[2], tuple(words[3].split(",")))
    return tuple(by_path.values())


def memory(root: str = "/") -> dict[str, int]:
    """The values of /proc/meminfo by name, in KiB."""
    amounts = {}
    for line in read(os.path.join(root, "proc/meminfo")).splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            amounts[key] = int(words[0])
    return amounts


def memory_errors(root: str = "/") -> int:
    """Uncorrected errors of the host's memory since the node started (EDAC)."""
    folder = os.path.join(root, "sys/devices/system/edac/mc")
    total = 0
    for name in names(folder):
        text = read(os.path.join(folder, name, "ue_count")).strip()
        total += int(text) if text.isdigit() else 0
    return total


def bad_disks(root: str = "/") -> dict[str, str]:
    """NVMe controllers that are not live and RAIDs that lack a disk, each with its state."""
    states = {}
    for name in names(os.path.join(root, "sys/class/nvme")):
        state = read(os.path.join(root, "sys/class/nvme", name, "state")).strip()
        if state and state != "live":
            states[name] = state
    for name in names(os.path.join(root, "sys/block")):
        missing = read(os.path.join(root, "sys/block", name, "md/degraded")).strip()
        if missing.isdigit() and int(missing):
            states[name] = f"misses {missing} disks"
    return states


def names(folder: str) -> list[str]:
    """The names in a folder; empty where the folder does not exist."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def programs(root: str = "/") -> dict[int, str]:
    """The running processes by pid, with the first 15 letters of their names."""
    proc = os.path.join(root, "proc")
    return {
        int(pid): name
        for pid in names(proc)
        if pid.isdigit() and (name := read(os.path.join(proc, pid, "comm")).strip())
    }


def job_of(pid: int, running: dict[int, str], root: str = "/") -> str:
    """The Slurm job of a process, found by its cgroup or by a slurmstepd above it; empty for
    none."""
    proc = os.path.join(root, "proc")
    if match := re.search(r"/job_(\d+)", read(os.path.join(proc, str(pid), "cgroup"))):
        return match[1]
    ancestor, seen = pid, set[int]()
    while ancestor > 1 and ancestor not in seen:
        seen.add(ancestor)
        if running.get(ancestor, "").startswith("slurmstepd"):
            environ = read(os.path.join(proc, str(pid), "environ"))
            variable = re.search(r"(?:^|\0)SLURM_JOB_ID=(\d+)", environ)
            return variable[1] if variable else "?"
        stat = read(os.path.join(proc, str(ancestor), "stat")).rpartition(")")[2].split()
        ancestor = int(stat[1]) if len(stat) > 1 else 0
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
        timex = Timex()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.adjtimex(ctypes.byref(timex)) < 0:
            return KernelClock()
    except (OSError, AttributeError):
        return KernelClock()
    return KernelClock(not timex.status & _UNSYNC, timex.maxerror / 1e6)
