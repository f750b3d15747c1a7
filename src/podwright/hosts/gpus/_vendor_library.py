"""The seam to a vendor's library, and the libraries that answer on this machine.

A library is imported when it is first used. A machine without it has no GPUs of that vendor.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from podwright.hosts.gpus._inventory_types import Gpu

#: Environment variables that name descriptions of stand-ins, which replace the real libraries.
NVML_STANDIN_VARIABLE = "PODWRIGHT_STANDIN_NVML"
AMDSMI_STANDIN_VARIABLE = "PODWRIGHT_STANDIN_AMDSMI"
STANDINS = (NVML_STANDIN_VARIABLE, AMDSMI_STANDIN_VARIABLE)


class Health(NamedTuple):
    """The health of a GPU. problems: what an administrator must look at; none: it may be used.

    Counts are None where the GPU does not report them. row_remap: `none`, `pending` until the next
    reset, or `failed`. xid: the last error code that the driver reported; 0 for none.
    """

    problems: tuple[str, ...] = ()
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    row_remap: str = ""
    xid: int = 0


class GpuUser(NamedTuple):
    """A process that uses a GPU. memory: bytes; None if not reported. user: empty if not known."""

    pid: int
    user: str
    command: str
    memory: int | None = None
    slice: str = ""


class Sample(NamedTuple):
    """The present readings of a GPU. A value is None where the GPU does not report it.

    memory: bytes in use. watts, celsius, mhz: in these units. load: per cent.
    """

    load: int | None = None
    memory: int | None = None
    watts: int | None = None
    celsius: int | None = None
    mhz: int | None = None


class Condition(NamedTuple):
    """How a GPU is set and linked. A value is None, or empty, where the GPU does not report it.

    ecc: whether it is on. nvlinks: for each link, whether it is up. mbps: the speed of one link, as
    the vendor counts. slowed: faults that lower the clocks (`thermal`, `power brake`, `hardware`,
    `software thermal`; AMD's `processor hot`, `memory hot`, `voltage regulator hot`). fabric: the
    state of its place in an NVLink fabric: `completed`, `in progress`, `not started` or `failed`.
    recovery: what the driver demands: `none`, `reset`, `reboot`, `drain`, `imex` (of the domain of
    nodes that share memory), or `action N` for one that is not known here.
    """

    persistence: bool | None = None
    ecc: bool | None = None
    nvlinks: tuple[bool, ...] = ()
    mbps: int | None = None
    slowed: tuple[str, ...] = ()
    fabric: str = ""
    recovery: str = ""


class LibraryError(Exception):
    """A vendor's library failed. The message names the operation."""


class Library(Protocol):
    """One vendor's GPUs, by index. Every method raises LibraryError."""

    vendor: str
    simulated: bool

    def version(self) -> str:
        """The version of the driver."""
        ...

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs, by PCI address.

        PCIe paths and near cores may be left for the kernel to tell.
        """
        ...

    def health(self, index: int) -> Health:
        """Return the health of a GPU."""
        ...

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """Return the processes that use a GPU."""
        ...

    def sample(self, index: int) -> Sample:
        """Return the present readings of a GPU."""
        ...

    def condition(self, index: int) -> Condition:
        """Return how a GPU is set and linked."""
        ...

    def fabric(self, index: int) -> str:
        """Return the fabric and clique of a GPU now, as `Gpu.fabric` has them."""
        ...

    def forget(self, index: int) -> None:
        """Forget what the driver reported of a GPU before its reset."""
        ...

    def close(self) -> None:
        """Close the library."""
        ...


def renumbered_gpus(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """Return GPUs of several vendors, renumbered as one machine's.

    Links lead only to the vendor's own.
    """
    numbered_gpus: list[Gpu] = []
    gpu_count = len(gpus)
    first_index = 0
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        vendor_gpus = [gpu for gpu in gpus if gpu.vendor == vendor]
        gpus_after = gpu_count - first_index - len(vendor_gpus)
        numbered_gpus += [
            msgspec.structs.replace(
                gpu,
                index=first_index + vendor_index,
                links=(0,) * first_index + gpu.links + (0,) * gpus_after,
                paths=gpu.paths if gpu_count == len(vendor_gpus) else (),
            )
            for vendor_index, gpu in enumerate(vendor_gpus)
        ]
        first_index += len(vendor_gpus)
    return tuple(numbered_gpus)
