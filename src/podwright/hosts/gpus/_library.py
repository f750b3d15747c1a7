"""The seam to a vendor's library, and the libraries that answer on this machine.

A library is imported when it is asked for, and a machine without it has no GPUs of that vendor.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from podwright.hosts.gpus._values import Gpu

#: Variables that name descriptions of stand-ins, which answer in place of the real libraries.
STANDINS = ("PODWRIGHT_STANDIN_NVML", "PODWRIGHT_STANDIN_AMDSMI")


class Health(NamedTuple):
    """How a GPU does. problems: what an administrator must look at; none: it may be used.

    Counts are None where the GPU cannot tell. row_remap: `none`, `pending` until the next reset,
    or `failed`. xid: the last error code that the driver told of, 0 for none seen.
    """

    problems: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    row_remap: str = ""
    xid: int = 0


class GpuUser(NamedTuple):
    """A process that uses a GPU. memory: bytes, None where not told. user: empty if unknown."""

    pid: int
    user: str
    command: str
    memory: int | None = None
    slice: str = ""


class Sample(NamedTuple):
    """What a GPU does right now; None where it cannot tell. memory: bytes used. watts, celsius,
    mhz as they are; load: per cent."""

    load: int | None = None
    memory: int | None = None
    watts: int | None = None
    celsius: int | None = None
    mhz: int | None = None


class Condition(NamedTuple):
    """How a GPU is set and linked; None, or nothing, where it cannot tell.

    ecc: whether it is on. nvlinks: of each link, whether it is up; mbps: the
    speed of one, as the vendor counts. slowed: what holds its clocks down that should not
    (`thermal`, `power brake`, `hardware`, `software thermal`; AMD's `processor hot`, `memory hot`,
    `voltage regulator hot`). fabric: the state of its place in
    an NVLink fabric: `completed`, `in progress`, `not started` or `failed`. recovery: what the
    driver asks for: `none`, `reset`, `reboot`, `drain`.
    """

    persistence: bool | None = None
    ecc: bool | None = None
    nvlinks: tuple[bool, ...] = ()
    mbps: int | None = None
    slowed: tuple[str, ...] = ()
    fabric: str = ""
    recovery: str = ""


class LibraryError(Exception):
    """A vendor's library failed; the message says at what."""


class Library(Protocol):
    """One vendor's GPUs, by index. Every call raises LibraryError."""

    vendor: str
    simulated: bool

    def version(self) -> str:
        """Of the driver."""
        ...

    def gpus(self) -> tuple[Gpu, ...]:
        """All of them, by PCI address. Ways over PCIe and near cores may be left to the kernel."""
        ...

    def health(self, index: int) -> Health:
        """How one does."""
        ...

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """Who uses it."""
        ...

    def sample(self, index: int) -> Sample:
        """What it does."""
        ...

    def condition(self, index: int) -> Condition:
        """How it is set and linked."""
        ...

    def forget(self, index: int) -> None:
        """After a reset: what was heard of one before counts no more."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def renumbered(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """GPUs of several vendors as those of one machine; links lead to the vendor's own only."""
    out: list[Gpu] = []
    total = len(gpus)
    start = 0
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        own = [gpu for gpu in gpus if gpu.vendor == vendor]
        after = total - start - len(own)
        out += [
            msgspec.structs.replace(
                gpu,
                index=start + i,
                links=(0,) * start + gpu.links + (0,) * after,
                paths=gpu.paths if total == len(own) else (),
            )
            for i, gpu in enumerate(own)
        ]
        start += len(own)
    return tuple(out)
