"""Checks of the node around its GPUs: memory, disks, mounts, the clock. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._kernel import REMOTE
from podwright.gpu.health._probe import Answer

_LOCAL = ("ext4", "xfs", "btrfs", "ext3", "zfs")


def memory(context: CheckContext) -> Iterator[Wrong]:
    """All of the host's memory is there, and none of it is broken."""
    seen = context.seen
    total = seen.memory.get("MemTotal", 0) << 10  # the kernel tells KiB
    wanted = context.settings.expect.memory or (context.like.memory if context.like else 0)
    if wanted and total and total < wanted * (1 - context.limit / 100):
        yield Wrong(
            "",
            f"{total >> 20} MiB of memory, not {wanted >> 20}",
            "A memory module is missing or was switched off.",
            "See the BMC's log; Slurm's RealMemory must not be more than there is.",
        )
    if broken := seen.memory.get("HardwareCorrupted", 0):
        yield Wrong(
            "",
            f"{broken} KiB of memory are broken",
            "The kernel has taken pages out of use after errors.",
            "Replace the module that the BMC's log names.",
            "warn",
        )
    if seen.memory_errors:
        yield Wrong(
            "",
            f"{seen.memory_errors} uncorrected errors of the host's memory",
            "Programs may have computed with wrong data.",
            "Replace the module that the BMC's log names.",
        )


def disks(context: CheckContext) -> Iterator[Wrong]:
    """Local disks answer, have room, and can be written."""
    for name, state in context.seen.bad_disks.items():
        yield Wrong(
            f"disk {name}",
            state,
            "A local disk does not do what it should.",
            "See the kernel's log; have it replaced.",
        )
    readonly = {
        mount.path
        for mount in context.seen.mounts
        if mount.kind in _LOCAL and "ro" in mount.options
    }
    for path in context.settings.expect.disks:
        answer = context.seen.paths.get(path)
        if path in readonly:
            yield _disk_full(
                path, "is read-only", "An error may have made it so; jobs cannot write."
            )
        if answer is None or (answer.code and "No such file" in answer.out):
            continue
        if answer.code != 0:
            yield _disk_full(path, "does not answer", "Whatever touches it hangs.")
            continue
        for resource, share in _shares(answer):
            if share is not None and share < context.limit:
                yield _disk_full(
                    path,
                    f"{share:.0f} % of {resource} free",
                    "Jobs and Slurm itself fail when it is full.",
                )


def _disk_full(path: str, problem: str, means: str) -> Wrong:
    return Wrong(f"disk {path}", problem, means, "Make room, or see the kernel's log.")


def _shares(answer: Answer) -> Iterator[tuple[str, float | None]]:
    """Free room and free inodes, per cent; None where the file system does not count them."""
    words = [int(word) for word in answer.out.split() if word.isdigit()]
    if len(words) == 4:
        blocks, room, inodes, free = words
        yield "room", 100 * room / blocks if blocks else None
        yield "inodes", 100 * free / inodes if inodes else None


def mounts(context: CheckContext) -> Iterator[Wrong]:
    """File servers answer in time, and what must be mounted is."""
    seen = context.seen
    by_path = {mount.path: mount for mount in seen.mounts}
    for path in context.settings.expect.mounts:
        if path not in by_path:
            yield Wrong(
                f"mount {path}",
                "not mounted",
                "Jobs do not find their files, or write to the node's own disk.",
                f"mount {path}; see /etc/fstab or the automounter.",
            )
    remote = [path for path, mount in by_path.items() if mount.kind in REMOTE]
    for path in dict.fromkeys((*context.settings.expect.mounts, *remote)):
        answer = seen.paths.get(path)
        if path in by_path and answer is not None and answer.code != 0:
            hung = answer.code is None
            yield Wrong(
                f"mount {path}",
                "does not answer" if hung else f"fails: {answer.out.rpartition(': ')[2]}"[:60],
                "Programs that touch it hang and cannot be ended."
                if hung
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
    for script in context.settings.scripts:
        answer = context.seen.scripts.get(script.name, Answer(127, "did not run"))
        first_line = answer.out.partition("\n")[0][:80]
        if answer.code == 0:
            continue
        if answer.code in (1, 2):
            level = "fail" if answer.code == 2 else "warn"
            yield Wrong(script.name, first_line or "fails", script.means, script.do, level)
            continue
        late = answer.code is None
        how = f"no end within {script.timeout:g} s" if late else f"ended with {answer.code}"
        yield Wrong(
            script.name,
            f"is broken: {how}",
            "The check itself does not work, which says nothing of the node.",
            f"Run it by hand: {' '.join(script.command)}. It ends with 0, 1 (warn) or 2 (fail).",
            "warn",
        )
