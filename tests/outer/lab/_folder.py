"""A lab's folder, and the end of every process that belongs to it.

A process belongs to a lab when its environment names the lab's folder: daemons, the steps that
they start and the jobs inside all carry SLURM_CONF or PODWRIGHT_LAB. So does one that works in it:
a slurmstepd writes its title over its environment. That is how a lab ends what it started, and
nothing else, even after a test process was killed with its labs still up.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

PARENT = Path("/var/tmp")
PREFIX = "pwlab-"
#: How much slower than its usual self a machine may be: no test here is about speed.
BUSY = 6.0
#: Seconds between two looks at what takes long.
SELDOM = 0.3

T = TypeVar("T")


class LabError(RuntimeError):
    """The lab itself failed: a daemon did not come up, a command of the test's own went wrong."""


def poll(
    what: str, probe: Callable[[], T | None], *, seconds: float = 30.0, every: float = 0.02
) -> T:
    """The first true answer of `probe`. Raises LabError, naming `what`.

    seconds: on a machine that does nothing else; a busy one has BUSY times as many. every: at
    first; what takes long is asked for more seldom, since a probe is mostly a command, and takes
    from what is waited for.
    """
    begun = time.monotonic()
    while True:
        answer = probe()
        if answer:
            return answer
        waited = time.monotonic() - begun
        if waited > BUSY * seconds:
            raise LabError(f"{what}: not within {BUSY * seconds:g} s (last answer: {answer!r})")
        time.sleep(max(every, min(waited / 20, SELDOM)))


def written_at(path: Path) -> float:
    """When a file was last written, in seconds since the epoch; 0 where there is none.

    slurmctld replaces its state by unlink and link, so that there is none for an instant.
    """
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def new_folder() -> Path:
    """A folder that all users may enter: their jobs run in its `out` and write there."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PARENT))
    folder.chmod(0o755)
    (folder / "owner").write_text(f"{os.getpid()} {_start_time(os.getpid())}\n")
    out = folder / "out"
    out.mkdir()
    out.chmod(0o1777)
    return folder


def processes_of(folder: Path) -> list[int]:
    """Every process whose environment names the folder, or that works there, but this one."""
    mark = os.fsencode(f"={folder}")
    found = []
    for pid in _pids():
        if pid == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            works = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
        except OSError:
            continue
        named = any(_names(entry, mark) for entry in environment.split(b"\0"))
        # Another release's daemons have another root, so the folder is somewhere in the path.
        if named or folder.name in Path(works).parts:
            found.append(pid)
    return found


def what_runs(folder: Path) -> str:
    """A line for every process of the folder: number, parent, state, where it waits, command."""
    lines = []
    for pid in processes_of(folder):
        proc = Path(f"/proc/{pid}")
        try:
            state, parent = (proc / "stat").read_text().rpartition(")")[2].split()[:2]
            waits = " ".join((task / "wchan").read_text() for task in proc.glob("task/*"))
            command = (proc / "cmdline").read_bytes().replace(b"\0", b" ")[:200].decode()
        except (OSError, UnicodeDecodeError):
            continue
        lines.append(f"{pid} {parent} {state} [{waits}] {command}\n")
    return "".join(lines)


def end_processes(folder: Path) -> None:
    """Kills all that belongs to the folder and waits until it is gone."""

    def none_left() -> bool:
        alive = processes_of(folder)
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not alive

    poll(f"end of the processes of {folder}", none_left, seconds=20)


def remove(folder: Path) -> None:
    end_processes(folder)
    shutil.rmtree(folder, ignore_errors=True)


def sweep_dead_labs() -> None:
    """Removes labs whose test process is gone (killed, say), with all they left running."""
    for folder in PARENT.glob(PREFIX + "*"):
        try:
            pid, started = (folder / "owner").read_text().split()
        except (OSError, ValueError):
            continue
        if _start_time(int(pid)) != started:
            remove(folder)


def _names(entry: bytes, mark: bytes) -> bool:
    at = entry.find(mark)
    return at > 0 and entry[at + len(mark) :][:1] in (b"", b"/", b":")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _start_time(pid: int) -> str:
    """Field 22 of proc(5) stat: tells a process from a later one with the same number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
