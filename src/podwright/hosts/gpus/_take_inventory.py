"""Taking a machine's inventory: what its libraries and its kernel report, combined."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.hosts._cores import Cores, cores_of_sys, read_list, write_list
from podwright.hosts._local_host_facts import host_name
from podwright.hosts.gpus._inventory_types import Gpu, Inventory
from podwright.hosts.gpus._nics import read_nics
from podwright.hosts.gpus._open_libraries import open_libraries
from podwright.hosts.gpus._pci import near_cpus, numa_node, pci_folder, pci_path, read_line
from podwright.hosts.gpus._vendor_library import Library, LibraryError, renumbered_gpus


class TakenInventory(NamedTuple):
    """The GPUs of this machine, by PCI address in each vendor's own order.

    libraries: the caller must close them. notes: what could not be read.
    """

    gpus: tuple[Gpu, ...]
    libraries: list[Library]
    drivers: dict[str, str]
    notes: list[str]


def take_gpus(
    environ: Mapping[str, str], root_folder: str = "/", libraries: Sequence[Library] | None = None
) -> TakenInventory:
    """Return the GPUs, and the libraries that report them.

    libraries: used instead of the installed ones.
    """
    notes: list[str] = []
    opened_libraries = list(libraries or ())
    if libraries is None:
        opened_libraries, notes = open_libraries(environ, root_folder)
    gpus: list[Gpu] = []
    driver_versions = {}
    for library in opened_libraries:
        try:
            driver_versions[library.vendor] = library.version()
            gpus += library.gpus()
        except LibraryError as error:
            notes.append(f"{library.vendor}: {error}")
    machine_cores = cores_of_sys(root_folder) or Cores(())
    return TakenInventory(
        locate(renumbered_gpus(gpus), machine_cores, root_folder),
        opened_libraries,
        driver_versions,
        notes,
    )


def take_inventory(
    environ: Mapping[str, str], root_folder: str = "/", libraries: Sequence[Library] | None = None
) -> Inventory:
    """Return what this machine has. libraries: to ask; by default those that answer here."""
    taken_inventory = take_gpus(environ, root_folder, libraries)
    if libraries is None:
        for vendor_library in taken_inventory.libraries:
            vendor_library.close()
    machine_cores = cores_of_sys(root_folder) or Cores(())
    socket_count = max(len({core.socket for core in machine_cores.cores}), 1)
    return Inventory(
        host=host_name(),
        sockets=socket_count,
        cores_per_socket=len(machine_cores.cores) // socket_count,
        threads_per_core=max((len(core.cpus) for core in machine_cores.cores), default=1),
        memory=_memory_bytes(root_folder),
        gpus=taken_inventory.gpus,
        nics=read_nics(taken_inventory.gpus, root_folder),
        drivers=taken_inventory.drivers,
        simulated=any(library.simulated for library in taken_inventory.libraries),
        notes=tuple(taken_inventory.notes),
    )


def locate(gpus: Sequence[Gpu], machine_cores: Cores, root_folder: str = "/") -> tuple[Gpu, ...]:
    """Return these GPUs with the values that the libraries did not report, from the kernel."""
    gpu_folders = [pci_folder(gpu.bus, root_folder) for gpu in gpus]
    located_gpus = []
    for gpu, gpu_folder in zip(gpus, gpu_folders, strict=True):
        numa_node_of = gpu.node if gpu.node >= 0 or not gpu_folder else numa_node(gpu_folder)
        cpu_list = gpu.cpus or (near_cpus(gpu_folder) if gpu_folder else "")
        pci_paths = gpu.paths or tuple(
            "X" if index == gpu.index else pci_path(gpu_folder, other_folder)
            for index, other_folder in enumerate(gpu_folders)
        )
        located_gpus.append(
            msgspec.structs.replace(
                gpu,
                node=numa_node_of,
                cpus=cpu_list,
                cores=_cores_of_cpu_list(cpu_list, machine_cores),
                paths=pci_paths,
            )
        )
    return tuple(located_gpus)


def _cores_of_cpu_list(cpu_list: str, machine_cores: Cores) -> str:
    """Return hardware threads as cores, counted socket after socket."""
    with contextlib.suppress(ValueError):
        threads = set(read_list(cpu_list))
        cores_by_socket = sorted(machine_cores.cores, key=lambda core: (core.socket, core.cpus))
        return write_list(
            index for index, core in enumerate(cores_by_socket) if threads.issuperset(core.cpus)
        )
    return ""


def _memory_bytes(root_folder: str) -> int:
    with contextlib.suppress(ValueError, IndexError):
        return int(read_line(os.path.join(root_folder, "proc/meminfo")).split()[1]) >> 10 << 20
    return 0
