"""Checks of the node around its GPUs: memory, disks, mounts, the clock. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._kernel_facts import REMOTE_FILE_SYSTEMS
from podwright.gpu.health._probe_with_timeout import Answer

_LOCAL_FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "ext3", "zfs")


def memory(context: CheckContext) -> Iterator[Wrong]:
    """All of the host's memory is there, and none of it is broken."""
    node_observation = context.seen
    total_bytes = node_observation.memory.get("MemTotal", 0) << 10  # the kernel tells KiB
    expected_bytes = context.settings.expect.memory or (context.like.memory if context.like else 0)
    if expected_bytes and total_bytes and total_bytes < expected_bytes * (1 - context.limit / 100):
        yield Wrong(
            "",
            f"{total_bytes >> 20} MiB of memory, not {expected_bytes >> 20}",
            "A memory module is missing or was switched off.",
            "See the BMC's log; Slurm's RealMemory must not be more than there is.",
        )
    if broken_kib := node_observation.memory.get("HardwareCorrupted", 0):
        yield Wrong(
            "",
            f"{broken_kib} KiB of memory are broken",
            "The kernel has taken pages out of use after errors.",
            "Replace the module that the BMC's log names.",
            "warn",
        )
    if node_observation.memory_errors:
        yield Wrong(
            "",
            f"{node_observation.memory_errors} uncorrected errors of the host's memory",
            "Programs may have computed with wrong data.",
            "Replace the module that the BMC's log names.",
        )


def disks(context: CheckContext) -> Iterator[Wrong]:
    """Local disks answer, have room, and can be written."""
    for disk_name, disk_state in context.seen.bad_disks.items():
        yield Wrong(
            f"disk {disk_name}",
            disk_state,
            "A local disk does not do what it should.",
            "See the kernel's log; have it replaced.",
        )
    readonly_paths = {
        mount.path
        for mount in context.seen.mounts
        if mount.kind in _LOCAL_FILE_SYSTEMS and "ro" in mount.options
    }
    for disk_path in context.settings.expect.disks:
        stat_answer = context.seen.paths.get(disk_path)
        if disk_path in readonly_paths:
            yield _disk_finding(
                disk_path, "is read-only", "An error may have made it so; jobs cannot write."
            )
        if stat_answer is None or (stat_answer.code and "No such file" in stat_answer.out):
            continue
        if stat_answer.code != 0:
            yield _disk_finding(disk_path, "does not answer", "Whatever touches it hangs.")
            continue
        for resource, free_percent in _free_percents(stat_answer):
            if free_percent is not None and free_percent < context.limit:
                yield _disk_finding(
                    disk_path,
                    f"{free_percent:.0f} % of {resource} free",
                    "Jobs and Slurm itself fail when it is full.",
                )


def _disk_finding(disk_path: str, problem: str, means: str) -> Wrong:
    return Wrong(f"disk {disk_path}", problem, means, "Make room, or see the kernel's log.")


def _free_percents(stat_answer: Answer) -> Iterator[tuple[str, float | None]]:
    """Free room and free inodes, per cent; None where the file system does not count them."""
    stat_numbers = [
        int(number_text) for number_text in stat_answer.out.split() if number_text.isdigit()
    ]
    if len(stat_numbers) == 4:
        total_blocks, free_blocks, total_inodes, free_inodes = stat_numbers
        yield "room", 100 * free_blocks / total_blocks if total_blocks else None
        yield "inodes", 100 * free_inodes / total_inodes if total_inodes else None


def mounts(context: CheckContext) -> Iterator[Wrong]:
    """File servers answer in time, and what must be mounted is."""
    node_observation = context.seen
    mounts_by_path = {mount.path: mount for mount in node_observation.mounts}
    for mount_path in context.settings.expect.mounts:
        if mount_path not in mounts_by_path:
            yield Wrong(
                f"mount {mount_path}",
                "not mounted",
                "Jobs do not find their files, or write to the node's own disk.",
                f"mount {mount_path}; see /etc/fstab or the automounter.",
            )
    remote_paths = [
        mount_path
        for mount_path, mount in mounts_by_path.items()
        if mount.kind in REMOTE_FILE_SYSTEMS
    ]
    for mount_path in dict.fromkeys((*context.settings.expect.mounts, *remote_paths)):
        stat_answer = node_observation.paths.get(mount_path)
        if mount_path in mounts_by_path and stat_answer is not None and stat_answer.code != 0:
            is_hung = stat_answer.code is None
            yield Wrong(
                f"mount {mount_path}",
                "does not answer"
                if is_hung
                else f"fails: {stat_answer.out.rpartition(': ')[2]}"[:60],
                "Programs that touch it hang and cannot be ended."
                if is_hung
                else "Programs that touch it fail.",
                "See the file server and the network to it; where it is back, mount it anew.",
            )


def clock(context: CheckContext) -> Iterator[Wrong]:
    """The clock is synchronised and close to the right time."""
    clock_state = context.seen.clock
    if clock_state.synchronised is False:
        problem = "the clock is set by nobody"
    elif clock_state.synchronised and clock_state.error > context.limit:
        problem = f"the clock may be {clock_state.error:.1f} s off"
    else:
        return
    yield Wrong(
        "",
        problem,
        "MUNGE refuses credentials of clocks that are minutes apart; logs do not fit together.",
        "systemctl enable --now chronyd (or systemd-timesyncd); see chronyc tracking.",
    )


def scripts(context: CheckContext) -> Iterator[Wrong]:
    """The site's own scripts. A script that is broken or late warns, and drains nothing."""
    for site_script in context.settings.scripts:
        script_answer = context.seen.scripts.get(site_script.name, Answer(127, "did not run"))
        first_line = script_answer.out.partition("\n")[0][:80]
        if script_answer.code == 0:
            continue
        if script_answer.code in (1, 2):
            finding_level = "fail" if script_answer.code == 2 else "warn"
            yield Wrong(
                site_script.name,
                first_line or "fails",
                site_script.means,
                site_script.do,
                finding_level,
            )
            continue
        timed_out = script_answer.code is None
        ending = (
            f"no end within {site_script.timeout:g} s"
            if timed_out
            else f"ended with {script_answer.code}"
        )
        yield Wrong(
            site_script.name,
            f"is broken: {ending}",
            "The check itself does not work, which says nothing of the node.",
            f"Run it by hand: {' '.join(site_script.command)}. It ends with 0, 1 (warn) or 2 "
            "(fail).",
            "warn",
        )
