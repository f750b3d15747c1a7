"""Taking a machine's inventory: what its libraries and its kernel report, combined."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.hosts._cores import Cores, cores_of_sys, read_list, write_list
from podwright.hosts._local import host_name
from podwright.hosts.gpus._library import Library, LibraryError, renumbered
from podwright.hosts.gpus._nics import read_nics
from podwright.hosts.gpus._open_libraries import open_libraries
from podwright.hosts.gpus._pci import near_cpus, numa_node, pci_folder, pci_path, read_line
from podwright.hosts.gpus._values import Gpu, Inventory


class TakenInventory(NamedTuple):
    """The GPUs of this machine, by PCI address in each vendor's own order.

    libraries: the caller must close them. notes: what could not be read.
    """

    gpus: tuple[Gpu, ...]
    libraries: list[Library]
    drivers: dict[str, str]
    notes: list[str]


def take_gpus(
    environ: Mapping[str, str], root: str = "/", libraries: Sequence[Library] | None = None
) -> TakenInventory:
    """Return the GPUs, and the libraries that report them.

    libraries: used instead of the installed ones.
    """
    notes: list[str] = []
    opened = list(libraries or ())
    if libraries is None:
        opened, notes = open_libraries(environ)
    gpus: list[Gpu] = []
    drivers = {}
    for library in opened:
        try:
            drivers[library.vendor] = library.version()
            gpus += library.gpus()
        except LibraryError as error:
            notes.append(f"{library.vendor}: {error}")
    cores = cores_of_sys(root) or Cores(())
    return TakenInventory(locate(renumbered(gpus), cores, root), opened, drivers, notes)


def take_inventory(
    environ: Mapping[str, str], root: str = "/", libraries: Sequence[Library] | None = None
) -> Inventory:
    """Return what this machine has. libraries: to ask; by default those that answer here."""
    inventory = take_gpus(environ, root, libraries)
    if libraries is None:
        for library in inventory.libraries:
            library.close()
    cores = cores_of_sys(root) or Cores(())
    sockets = max(len({core.socket for core in cores.cores}), 1)
    return Inventory(
        host=host_name(),
        sockets=sockets,
        cores_per_socket=len(cores.cores) // sockets,
        threads_per_core=max((len(core.cpus) for core in cores.cores), default=1),
        memory=_memory(root),
        gpus=inventory.gpus,
        nics=read_nics(inventory.gpus, root),
        drivers=inventory.drivers,
        simulated=any(library.simulated for library in inventory.libraries),
        notes=tuple(inventory.notes),
    )


def locate(gpus: Sequence[Gpu], cores: Cores, root: str = "/") -> tuple[Gpu, ...]:
    """Return these GPUs with the values that the libraries did not report, from the kernel."""
    folders = [pci_folder(gpu.bus, root) for gpu in gpus]
    out = []
    for gpu, folder in zip(gpus, folders, strict=True):
        node = gpu.node if gpu.node >= 0 or not folder else numa_node(folder)
        cpus = gpu.cpus or (near_cpus(folder) if folder else "")
        paths = gpu.paths or tuple(
            "X" if i == gpu.index else pci_path(folder, other) for i, other in enumerate(folders)
        )
        out.append(
            msgspec.structs.replace(
                gpu, node=node, cpus=cpus, cores=_cores(cpus, cores), paths=paths
            )
        )
    return tuple(out)


def _cores(cpus: str, cores: Cores) -> str:
    """Return hardware threads as cores, counted socket after socket."""
    with contextlib.suppress(ValueError):
        near = set(read_list(cpus))
        ordered = sorted(cores.cores, key=lambda core: (core.socket, core.cpus))
        return write_list(i for i, core in enumerate(ordered) if near.issuperset(core.cpus))
    return ""


def _memory(root: str) -> int:
    with contextlib.suppress(ValueError, IndexError):
        return int(read_line(os.path.join(root, "proc/meminfo")).split()[1]) >> 10 << 20
    return 0
