"""What there is to see of a node, gathered once for all checks. Everything that may hang, as a
driver does after some errors, is asked by children with a time limit.

`/dev/kmsg` tells of XIDs since the node started, so nothing has to run beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.hosts.gpus import (
    Condition,
    Gpu,
    GpuUser,
    Health,
    Inventory,
    Library,
    LibraryError,
    Nic,
    Sample,
    open_libraries,
    take_inventory,
)
from podwright.slurm.gpus.health import _kernel as kernel
from podwright.slurm.gpus.health._probe import Answer, apart, ask
from podwright.slurm.gpus.health._settings import Settings

#: Seconds for GPUs, and for a mount, to answer, where the site says no other. A driver that is not
#: kept loaded starts eight GPUs first.
PATIENCE, _OF_MOUNTS = 40.0, 2.0


class SeenGpu(NamedTuple):
    """One GPU. error: why the library could not tell of it. jobs: of each holder, its job."""

    gpu: Gpu
    health: Health
    condition: Condition
    sample: Sample
    link: kernel.Link
    holders: tuple[tuple[GpuUser, str], ...] = ()
    xids: tuple[kernel.Told, ...] = ()
    error: str = ""


class SeenNic(NamedTuple):
    """One network adapter."""

    nic: Nic
    link: kernel.Link


class Seen(NamedTuple):
    """A node. lost: XIDs of GPUs that the library does not list. switch_errors: SXids. log: could
    the kernel's log be read. paths: what asking for the room of each path brought: `blocks free
    inodes free`."""

    inventory: Inventory
    gpus: tuple[SeenGpu, ...]
    nics: tuple[SeenNic, ...]
    lost: tuple[kernel.Told, ...]
    switch_errors: tuple[kernel.SwitchTold, ...]
    log: bool
    memory: Mapping[str, int]
    memory_errors: int
    bad_disks: Mapping[str, str]
    mounts: tuple[kernel.Mount, ...]
    paths: Mapping[str, Answer]
    scripts: Mapping[str, Answer]
    programs: frozenset[str]
    switches: bool
    clock: kernel.KernelClock


def look(settings: Settings, environ: Mapping[str, str], root: str = "/", since: float = 0) -> Seen:
    """The node as it is. since: seconds after its start; XIDs before that count no more."""
    running = kernel.programs(root)
    told = kernel.xids(root)
    of_gpus, of_switches = told or ([], [])
    after = [one for one in of_gpus if one.at >= since]
    patience = settings.check("library").limit or PATIENCE
    inventory = take_inventory(environ, root, [])
    gpus: tuple[SeenGpu, ...] = ()
    try:
        found = apart(lambda: _ask_libraries(environ, root, running, after), patience)
        inventory, gpus = found or (_noted(inventory, [f"no answer within {patience:g} s"]), ())
    except ChildProcessError as error:
        inventory = _noted(inventory, [str(error)])
    buses = {seen.gpu.bus for seen in gpus}
    mounts = kernel.mounts(root)
    answers = ask(_questions(settings, mounts), dict(environ))
    return Seen(
        inventory=inventory,
        gpus=gpus,
        nics=tuple(SeenNic(nic, kernel.link(nic.bus, root)) for nic in inventory.nics),
        lost=tuple(one for one in after if one.bus not in buses),
        switch_errors=tuple(one for one in of_switches if one.at >= since),
        log=told is not None,
        memory=kernel.memory(root),
        memory_errors=kernel.memory_errors(root),
        bad_disks=kernel.bad_disks(root),
        mounts=mounts,
        paths={name[5:]: said for name, said in answers.items() if name.startswith("path ")},
        scripts={name[7:]: said for name, said in answers.items() if name.startswith("script ")},
        programs=frozenset(running.values()),
        switches=bool(kernel.names(os.path.join(root, "proc/driver/nvidia-nvswitch/devices"))),
        clock=kernel.clock(),
    )


def _ask_libraries(
    environ: Mapping[str, str],
    root: str,
    running: dict[int, str],
    told: Sequence[kernel.Told],
) -> tuple[Inventory, tuple[SeenGpu, ...]]:
    """What the vendors' libraries tell. A driver that hangs keeps whoever asks here for ever."""
    libraries, notes = open_libraries(environ, root)
    try:
        # A list that is given is not looked for, so what kept libraries away is told here.
        inventory = _noted(take_inventory(environ, root, libraries), notes)
        return inventory, _gpus(inventory, libraries, running, told, root)
    finally:
        for library in libraries:
            library.close()


def _noted(inventory: Inventory, notes: Sequence[str]) -> Inventory:
    return msgspec.structs.replace(inventory, notes=(*notes, *inventory.notes))


def _gpus(
    inventory: Inventory,
    libraries: Sequence[Library],
    running: dict[int, str],
    told: Sequence[kernel.Told],
    root: str,
) -> tuple[SeenGpu, ...]:
    by_vendor = {library.vendor: library for library in libraries}
    found = []
    place: dict[str, int] = {}
    for gpu in inventory.gpus:
        index = place.get(gpu.vendor, 0)  # a library counts its own
        place[gpu.vendor] = index + 1
        library = by_vendor[gpu.vendor]
        own = tuple(one for one in told if one.bus == gpu.bus)
        link = kernel.link(gpu.bus, root)
        try:
            found.append(_gpu(gpu, library, index, link, own, running, root))
        except LibraryError as error:
            nothing = (Health(), Condition(), Sample())
            found.append(SeenGpu(gpu, *nothing, link, xids=own, error=str(error)))
    return tuple(found)


def _gpu(
    gpu: Gpu,
    library: Library,
    index: int,
    link: kernel.Link,
    told: tuple[kernel.Told, ...],
    running: dict[int, str],
    root: str,
) -> SeenGpu:
    holders = tuple(
        (holder, kernel.job_of(holder.pid, running, root)) for holder in library.holders(index)
    )
    health, condition = library.health(index), library.condition(index)
    return SeenGpu(gpu, health, condition, library.sample(index), link, holders, told)


def _questions(
    settings: Settings, mounts: Sequence[kernel.Mount]
) -> dict[str, tuple[Sequence[str], float]]:
    """What may hang, by name: the room of each path, and the site's scripts."""
    patience = settings.check("mounts").limit or _OF_MOUNTS
    asked: dict[str, tuple[Sequence[str], float]] = {}
    remote = [mount.path for mount in mounts if mount.kind in kernel.REMOTE]
    if settings.check("mounts").level != "off":
        for path in dict.fromkeys((*settings.expect.mounts, *remote)):
            asked[f"path {path}"] = (_room(path), patience)
    if settings.check("disks").level != "off":
        for path in settings.expect.disks:
            asked.setdefault(f"path {path}", (_room(path), patience))
    for script in settings.scripts:
        asked[f"script {script.name}"] = (script.command, script.timeout)
    return asked


def _room(path: str) -> list[str]:
    """Prints blocks, free ones for users, inodes, free ones."""
    return ["stat", "-f", "-c", "%b %a %c %d", path]
