"""Observes a node once for all checks. Whatever may hang, as a driver does after some errors, is
asked by child processes with a time limit.

`/dev/kmsg` keeps the XIDs since the node started, so no process needs to run beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.gpu.health import _kernel as kernel
from podwright.gpu.health._probe import Answer, apart, ask
from podwright.gpu.health._settings import Settings
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

#: Seconds that GPUs, and a mount, have to answer by default. A driver that is not kept loaded
#: starts eight GPUs first.
PATIENCE, _OF_MOUNTS = 40.0, 2.0


class SeenGpu(NamedTuple):
    """One GPU. error: why the library could not report on it. jobs: the job of each process that
    uses it.
    """

    gpu: Gpu
    health: Health
    condition: Condition
    sample: Sample
    link: kernel.Link
    holders: tuple[tuple[GpuUser, str], ...] = ()
    xids: tuple[kernel.XidEvent, ...] = ()
    error: str = ""


class SeenNic(NamedTuple):
    """One network adapter."""

    nic: Nic
    link: kernel.Link


class Seen(NamedTuple):
    """A node as it was observed.

    lost: XIDs of GPUs that the library does not list. switch_errors: SXids. log: whether the
    kernel's log could be read. paths: the answer for the room of each path: `blocks free inodes
    free`.
    """

    inventory: Inventory
    gpus: tuple[SeenGpu, ...]
    nics: tuple[SeenNic, ...]
    lost: tuple[kernel.XidEvent, ...]
    switch_errors: tuple[kernel.SwitchEvent, ...]
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


def observe(
    settings: Settings, environ: Mapping[str, str], root: str = "/", since: float = 0
) -> Seen:
    """Observe this node. since: seconds after its start; earlier XIDs do not count."""
    running = kernel.programs(root)
    logged = kernel.xids(root)
    of_gpus, of_switches = logged or ([], [])
    after = [event for event in of_gpus if event.at >= since]
    patience = settings.check("library").limit or PATIENCE
    inventory = take_inventory(environ, root, [])
    gpus: tuple[SeenGpu, ...] = ()
    try:
        answer = apart(lambda: _ask_libraries(environ, root, running, after), patience)
        inventory, gpus = answer or (_noted(inventory, [f"no answer within {patience:g} s"]), ())
    except ChildProcessError as error:
        inventory = _noted(inventory, [str(error)])
    buses = {seen.gpu.bus for seen in gpus}
    mounts = kernel.mounts(root)
    answers = ask(_questions(settings, mounts), dict(environ))
    return Seen(
        inventory=inventory,
        gpus=gpus,
        nics=tuple(SeenNic(nic, kernel.link(nic.bus, root)) for nic in inventory.nics),
        lost=tuple(event for event in after if event.bus not in buses),
        switch_errors=tuple(event for event in of_switches if event.at >= since),
        log=logged is not None,
        memory=kernel.memory(root),
        memory_errors=kernel.memory_errors(root),
        bad_disks=kernel.bad_disks(root),
        mounts=mounts,
        paths={
            name[5:]: answer_of for name, answer_of in answers.items() if name.startswith("path ")
        },
        scripts={
            name[7:]: answer_of for name, answer_of in answers.items() if name.startswith("script ")
        },
        programs=frozenset(running.values()),
        switches=bool(kernel.names(os.path.join(root, "proc/driver/nvidia-nvswitch/devices"))),
        clock=kernel.clock(),
    )


def _ask_libraries(
    environ: Mapping[str, str],
    root: str,
    running: dict[int, str],
    events: Sequence[kernel.XidEvent],
) -> tuple[Inventory, tuple[SeenGpu, ...]]:
    """Return what the vendors' libraries report. If a driver hangs, this call hangs too."""
    libraries, notes = open_libraries(environ, root)
    try:
        # With given libraries there is no search, so missing ones are explained here.
        inventory = _noted(take_inventory(environ, root, libraries), notes)
        return inventory, _gpus(inventory, libraries, running, events, root)
    finally:
        for library in libraries:
            library.close()


def _noted(inventory: Inventory, notes: Sequence[str]) -> Inventory:
    return msgspec.structs.replace(inventory, notes=(*notes, *inventory.notes))


def _gpus(
    inventory: Inventory,
    libraries: Sequence[Library],
    running: dict[int, str],
    events: Sequence[kernel.XidEvent],
    root: str,
) -> tuple[SeenGpu, ...]:
    by_vendor = {library.vendor: library for library in libraries}
    seen = []
    place: dict[str, int] = {}
    for gpu in inventory.gpus:
        index = place.get(gpu.vendor, 0)  # a library counts its own
        place[gpu.vendor] = index + 1
        library = by_vendor[gpu.vendor]
        own = tuple(event for event in events if event.bus == gpu.bus)
        link = kernel.link(gpu.bus, root)
        try:
            seen.append(_gpu(gpu, library, index, link, own, running=running, root=root))
        except LibraryError as error:
            nothing = (Health(), Condition(), Sample())
            seen.append(SeenGpu(gpu, *nothing, link, xids=own, error=str(error)))
    return tuple(seen)


def _gpu(
    gpu: Gpu,
    library: Library,
    index: int,
    link: kernel.Link,
    events: tuple[kernel.XidEvent, ...],
    *,
    running: dict[int, str],
    root: str,
) -> SeenGpu:
    holders = tuple(
        (holder, kernel.job_of(holder.pid, running, root)) for holder in library.holders(index)
    )
    health, condition = library.health(index), library.condition(index)
    return SeenGpu(gpu, health, condition, library.sample(index), link, holders, events)


def _questions(
    settings: Settings, mounts: Sequence[kernel.Mount]
) -> dict[str, tuple[Sequence[str], float]]:
    """Return the commands that may hang, by name: the room of each path, and the site's scripts."""
    patience = settings.check("mounts").limit or _OF_MOUNTS
    questions: dict[str, tuple[Sequence[str], float]] = {}
    remote = [mount.path for mount in mounts if mount.kind in kernel.REMOTE]
    if settings.check("mounts").level != "off":
        for path in dict.fromkeys((*settings.expect.mounts, *remote)):
            questions[f"path {path}"] = (_room(path), patience)
    if settings.check("disks").level != "off":
        for path in settings.expect.disks:
            questions.setdefault(f"path {path}", (_room(path), patience))
    for script in settings.scripts:
        questions[f"script {script.name}"] = (script.command, script.timeout)
    return questions


def _room(path: str) -> list[str]:
    """Print blocks, blocks that are free for users, inodes, free inodes."""
    return ["stat", "-f", "-c", "%b %a %c %d", path]
