"""Where a command runs: this machine, another Debian release's root, a host of a HostsLab.

A place turns an argument list into another one; nothing is ever handed to a shell. Ordinary users
are two that every Debian has, with the same uid in every root, so none needs to be created.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ._folder import LabError, poll

ALICE = "games"
BOB = "news"


class Place(Protocol):
    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The argument list that runs `argv` at this place."""
        ...

    def path(self, inside: str) -> Path:
        """Where a path of this place lies as this machine sees it."""
        ...


class Here:
    """This machine itself."""

    def wrap(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def path(self, inside: str) -> Path:
        return Path(inside)


class Inside:
    """The namespaces (and the root folder) of a process."""

    def __init__(self, pid: int, root: Path = Path("/"), *, spaces: str = "-m") -> None:
        self._pid = pid
        self._root = root
        self._spaces = spaces.split()

    def wrap(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", "-t", str(self._pid), *self._spaces, "--", *argv]

    def path(self, inside: str) -> Path:
        return self._root / inside.lstrip("/")


_MOUNTS = (
    'set -e; root="$1"; '
    'for d in proc sys dev; do mount --rbind "/$d" "$root/$d"; done; '
    'mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"; mount -t tmpfs tmpfs "$root/run"; '
    'mkdir -p "$root/var/tmp"; mount --rbind /var/tmp "$root/var/tmp"; '
    'touch "$root/etc/hosts"; mount --bind /etc/hosts "$root/etc/hosts"; '
)


class HostsRoot:
    """The other release on a host of a HostsLab, whose mounts are its own and go with it."""

    def __init__(self, root: Path, host: Inside) -> None:
        self._root, self._host = root, host
        made = subprocess.run(
            host.wrap(["bash", "-c", _MOUNTS, "-", str(root)]),
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise LabError(f"{root}: {made.stderr}")

    def wrap(self, argv: Sequence[str]) -> list[str]:
        return self._host.wrap(["chroot", str(self._root), *argv])

    def path(self, inside: str) -> Path:
        return self._root / inside.lstrip("/")


class Root:
    """A folder that holds another Debian release, entered through a mount namespace of its own.

    The namespace is held by one sleeping process: when that ends, every mount in it is gone, so
    nothing can be left mounted, and labs that share one root do not see each other's mounts.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        script = _MOUNTS + 'touch "$2/root-ready"; exec chroot "$root" sleep infinity'
        self._holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "bash", "-c", script, "-", root, folder],
            env={**os.environ, "PODWRIGHT_LAB": str(folder)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        cmdline = Path(f"/proc/{self._holder.pid}/cmdline")

        def mounted() -> bool:
            if self._holder.poll() is not None:
                raise LabError(f"{root}: its mounts failed")
            return (folder / "root-ready").exists() and cmdline.read_bytes().startswith(b"sleep")

        poll("mounts of the other release", mounted)
        self._inside = Inside(self._holder.pid, root, spaces="-m --root")

    def wrap(self, argv: Sequence[str]) -> list[str]:
        return self._inside.wrap(argv)

    def path(self, inside: str) -> Path:
        return self._inside.path(inside)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._holder.send_signal(signal.SIGKILL)
        self._holder.wait()


def as_user(argv: Sequence[str], user: str | None) -> list[str]:
    if user is None:
        return list(argv)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *argv]


def run(
    place: Place,
    argv: Sequence[str],
    *,
    user: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float = 300.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a command at a place and waits for it. Raises LabError where it hangs."""
    full = place.wrap(as_user(argv, user))
    try:
        return subprocess.run(
            full,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(argv)}: no end within {timeout:g} s") from error


def need(command: str) -> None:
    if shutil.which(command) is None:
        raise LabError(f"{command} is not installed: run tests/outer/install.sh as root")
