"""Observes a node once for all checks. Whatever may hang, as a driver does after some errors, is
asked by child processes with a time limit.

`/dev/kmsg` keeps the XIDs since the node started, so no process needs to run beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from podwright.gpu.health import _kernel_facts as kernel
from podwright.gpu.health._probe_with_timeout import Answer, apart, ask
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
LIBRARY_TIMEOUT_S, _MOUNT_TIMEOUT_S = 40.0, 2.0


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

    lost: XIDs of GPUs that the library does not list. switch_events_seen: SXids. log: whether the
    kernel's log could be read. paths: the answer for the room of each path: `blocks free inodes
    free`.
    """

    inventory: Inventory
    gpus: tuple[SeenGpu, ...]
    nics: tuple[SeenNic, ...]
    lost: tuple[kernel.XidEvent, ...]
    switch_events_seen: tuple[kernel.SwitchEvent, ...]
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
    settings: Settings,
    environ: Mapping[str, str],
    root_folder: str = "/",
    since_uptime_s: float = 0,
) -> Seen:
    """Observe this node. since_uptime_s: seconds after its start; earlier XIDs do not count."""
    running_programs = kernel.programs(root_folder)
    logged_events = kernel.xids(root_folder)
    gpu_events, switch_events = logged_events or ([], [])
    recent_gpu_events = [
        error_event for error_event in gpu_events if error_event.at >= since_uptime_s
    ]
    library_timeout_s = settings.check("library").limit or LIBRARY_TIMEOUT_S
    inventory = take_inventory(environ, root_folder, [])
    seen_gpus: tuple[SeenGpu, ...] = ()
    try:
        library_answer = apart(
            lambda: _ask_libraries(environ, root_folder, running_programs, recent_gpu_events),
            library_timeout_s,
        )
        inventory, seen_gpus = library_answer or (
            _with_notes(inventory, [f"no answer within {library_timeout_s:g} s"]),
            (),
        )
    except ChildProcessError as error:
        inventory = _with_notes(inventory, [str(error)])
    seen_buses = {seen_gpu.gpu.bus for seen_gpu in seen_gpus}
    mounts = kernel.mounts(root_folder)
    probe_answers = ask(_probe_commands(settings, mounts), dict(environ))
    return Seen(
        inventory=inventory,
        gpus=seen_gpus,
        nics=tuple(SeenNic(nic, kernel.link(nic.bus, root_folder)) for nic in inventory.nics),
        lost=tuple(
            error_event for error_event in recent_gpu_events if error_event.bus not in seen_buses
        ),
        switch_events_seen=tuple(
            error_event for error_event in switch_events if error_event.at >= since_uptime_s
        ),
        log=logged_events is not None,
        memory=kernel.memory(root_folder),
        memory_errors=kernel.memory_errors(root_folder),
        bad_disks=kernel.bad_disks(root_folder),
        mounts=mounts,
        paths={
            probe_name[5:]: probe_answer
            for probe_name, probe_answer in probe_answers.items()
            if probe_name.startswith("path ")
        },
        scripts={
            probe_name[7:]: probe_answer
            for probe_name, probe_answer in probe_answers.items()
            if probe_name.startswith("script ")
        },
        programs=frozenset(running_programs.values()),
        switches=bool(
            kernel.names(os.path.join(root_folder, "proc/driver/nvidia-nvswitch/devices"))
        ),
        clock=kernel.clock(),
    )


def _ask_libraries(
    environ: Mapping[str, str],
    root_folder: str,
    running_programs: dict[int, str],
    xid_events: Sequence[kernel.XidEvent],
) -> tuple[Inventory, tuple[SeenGpu, ...]]:
    """Return what the vendors' libraries report. If a driver hangs, this call hangs too."""
    gpu_libraries, notes = open_libraries(environ, root_folder)
    try:
        # With given libraries there is no search, so missing ones are explained here.
        inventory = _with_notes(take_inventory(environ, root_folder, gpu_libraries), notes)
        return inventory, _observe_gpus(
            inventory, gpu_libraries, running_programs, xid_events, root_folder
        )
    finally:
        for gpu_library in gpu_libraries:
            gpu_library.close()


def _with_notes(inventory: Inventory, added_notes: Sequence[str]) -> Inventory:
    return msgspec.structs.replace(inventory, notes=(*added_notes, *inventory.notes))


def _observe_gpus(
    inventory: Inventory,
    libraries: Sequence[Library],
    running_programs: dict[int, str],
    xid_events: Sequence[kernel.XidEvent],
    root_folder: str,
) -> tuple[SeenGpu, ...]:
    library_by_vendor = {gpu_library.vendor: gpu_library for gpu_library in libraries}
    seen_gpus = []
    next_index_by_vendor: dict[str, int] = {}
    for gpu in inventory.gpus:
        index_in_library = next_index_by_vendor.get(gpu.vendor, 0)  # a library counts its own
        next_index_by_vendor[gpu.vendor] = index_in_library + 1
        gpu_library = library_by_vendor[gpu.vendor]
        own_events = tuple(xid_event for xid_event in xid_events if xid_event.bus == gpu.bus)
        pcie_link = kernel.link(gpu.bus, root_folder)
        try:
            seen_gpus.append(
                _observe_gpu(
                    gpu,
                    gpu_library,
                    index_in_library,
                    pcie_link,
                    own_events,
                    running=running_programs,
                    root=root_folder,
                )
            )
        except LibraryError as error:
            empty_readings = (Health(), Condition(), Sample())
            seen_gpus.append(
                SeenGpu(gpu, *empty_readings, pcie_link, xids=own_events, error=str(error))
            )
    return tuple(seen_gpus)


def _observe_gpu(
    gpu: Gpu,
    gpu_library: Library,
    index_in_library: int,
    pcie_link: kernel.Link,
    xid_events: tuple[kernel.XidEvent, ...],
    *,
    running: dict[int, str],
    root: str,
) -> SeenGpu:
    users_with_jobs = tuple(
        (gpu_user, kernel.job_of(gpu_user.pid, running, root))
        for gpu_user in gpu_library.holders(index_in_library)
    )
    health, condition = (
        gpu_library.health(index_in_library),
        gpu_library.condition(index_in_library),
    )
    return SeenGpu(
        gpu,
        health,
        condition,
        gpu_library.sample(index_in_library),
        pcie_link,
        users_with_jobs,
        xid_events,
    )


def _probe_commands(
    settings: Settings, mounts: Sequence[kernel.Mount]
) -> dict[str, tuple[Sequence[str], float]]:
    """Return the commands that may hang, by name: the room of each path, and the site's scripts."""
    stat_timeout_s = settings.check("mounts").limit or _MOUNT_TIMEOUT_S
    commands_by_name: dict[str, tuple[Sequence[str], float]] = {}
    remote_paths = [mount.path for mount in mounts if mount.kind in kernel.REMOTE_FILE_SYSTEMS]
    if settings.check("mounts").level != "off":
        for stat_path in dict.fromkeys((*settings.expect.mounts, *remote_paths)):
            commands_by_name[f"path {stat_path}"] = (_stat_room_command(stat_path), stat_timeout_s)
    if settings.check("disks").level != "off":
        for stat_path in settings.expect.disks:
            commands_by_name.setdefault(
                f"path {stat_path}", (_stat_room_command(stat_path), stat_timeout_s)
            )
    for site_script in settings.scripts:
        commands_by_name[f"script {site_script.name}"] = (site_script.command, site_script.timeout)
    return commands_by_name


def _stat_room_command(stat_path: str) -> list[str]:
    """Print blocks, blocks that are free for users, inodes, free inodes."""
    return ["stat", "-f", "-c", "%b %a %c %d", stat_path]
