"""Observes a node once for all checks. A driver may hang after some errors, so a child process with
a time limit asks it.

`/dev/kmsg` keeps the lines since the node started, so no process needs to run beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.gpu.health import _kernel_facts as kernel
from podwright.gpu.health._kernel_log import KernelEvent, read_events
from podwright.gpu.health._probe_with_timeout import apart
from podwright.gpu.health._settings import Settings
from podwright.hosts.gpus import (
    Condition,
    Gpu,
    Health,
    Inventory,
    Library,
    LibraryError,
    Nic,
    open_libraries,
    take_inventory,
)

#: Seconds that the driver has to answer. One that is not kept loaded starts eight GPUs first.
LIBRARY_TIMEOUT_S = 40.0


class SeenGpu(NamedTuple):
    """One GPU. error: why the library could not report on it."""

    gpu: Gpu
    health: Health
    condition: Condition
    link: kernel.Link
    error: str = ""


class SeenNic(NamedTuple):
    """One network adapter."""

    nic: Nic
    link: kernel.Link


class Seen(NamedTuple):
    """A node as it was observed. log: None: it could not be read."""

    inventory: Inventory
    gpus: tuple[SeenGpu, ...]
    nics: tuple[SeenNic, ...]
    pci: tuple[kernel.PciGpu, ...]
    log: tuple[KernelEvent, ...] | None


def observe(
    settings: Settings,
    environ: Mapping[str, str],
    root_folder: str = "/",
    since_uptime_s: float = 0,
) -> Seen:
    """Observe this node. since_uptime_s: seconds after its start; earlier lines do not count."""
    records = kernel.log_records(root_folder)
    timeout_s = settings.check("driver").limit or LIBRARY_TIMEOUT_S
    inventory = take_inventory(environ, root_folder, [])
    seen_gpus: tuple[SeenGpu, ...] = ()
    try:
        answer = apart(lambda: _ask_libraries(environ, root_folder), timeout_s)
        inventory, seen_gpus = answer or (
            _with_notes(inventory, [f"no answer within {timeout_s:g} s"]),
            (),
        )
    except ChildProcessError as error:
        inventory = _with_notes(inventory, [str(error)])
    # A stand-in's GPUs are not those of this machine.
    has_real_pci = not inventory.simulated or root_folder != "/"
    return Seen(
        inventory=inventory,
        gpus=seen_gpus,
        nics=tuple(SeenNic(nic, kernel.link(nic.bus, root_folder)) for nic in inventory.nics),
        pci=kernel.pci_gpus(root_folder) if has_real_pci else (),
        log=None
        if records is None
        else tuple(event for event in read_events(records) if event.uptime >= since_uptime_s),
    )


def _ask_libraries(
    environ: Mapping[str, str], root_folder: str
) -> tuple[Inventory, tuple[SeenGpu, ...]]:
    """Return what the vendors' libraries report. If a driver hangs, this call hangs too."""
    libraries, notes = open_libraries(environ, root_folder)
    try:
        # With given libraries there is no search, so missing ones are explained here.
        inventory = _with_notes(take_inventory(environ, root_folder, libraries), notes)
        return inventory, _observe_gpus(inventory, libraries, root_folder)
    finally:
        for library in libraries:
            library.close()


def _with_notes(inventory: Inventory, added_notes: Sequence[str]) -> Inventory:
    return msgspec.structs.replace(inventory, notes=(*added_notes, *inventory.notes))


def _observe_gpus(
    inventory: Inventory, libraries: Sequence[Library], root_folder: str
) -> tuple[SeenGpu, ...]:
    library_by_vendor = {library.vendor: library for library in libraries}
    seen_gpus = []
    next_index_by_vendor: dict[str, int] = {}
    for gpu in inventory.gpus:
        index = next_index_by_vendor.get(gpu.vendor, 0)  # a library counts its own
        next_index_by_vendor[gpu.vendor] = index + 1
        library, link = library_by_vendor[gpu.vendor], kernel.link(gpu.bus, root_folder)
        try:
            seen_gpu = SeenGpu(gpu, library.health(index), library.condition(index), link)
        except LibraryError as error:
            seen_gpu = SeenGpu(gpu, Health(), Condition(), link, str(error))
        seen_gpus.append(seen_gpu)
    return tuple(seen_gpus)
