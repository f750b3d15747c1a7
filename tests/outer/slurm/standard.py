"""A lab whose Slurm and Podwright lie where a site has them: /etc/slurm, /etc/podwright,
/usr/local/lib/podwright, /run/podwright, port 8090. Only in namespaces of its own: the machine's
own folders stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.outer.lab import Inside, LabError, Release, poll
from tests.outer.slurm.native import ENTER, NativeLab, _reading_all

#: $1: the lab's folder. $2: the root of the release, / for this machine's own. The site's folders
#: are the lab's; what is written beside them goes into memory.
_MOUNTS = """\
set -e
lab=$1 root=${2%/}
ip link set lo up
# Slurm looks for no address, not even 127.0.0.1, where there is loopback alone.
ip link add out0 type veth peer name out1
ip addr add 192.0.2.1/24 dev out0
ip link set out0 up
ip link set out1 up
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/podwright "$lab/run" "$lab/memory"
mount -t tmpfs tmpfs "$lab/memory"
over() {
    mkdir -p "$lab/memory/$2/new" "$lab/memory/$2/work"
    mount -t overlay -o "lowerdir=$1,upperdir=$lab/memory/$2/new,workdir=$lab/memory/$2/work" \\
        overlay "$1"
}
site() {
    mkdir -p "$1/etc/slurm" "$1/etc/podwright" "$1/usr/local/lib/podwright"
    mount --bind "$lab" "$1/etc/slurm"
    mount --bind "$lab/podwright" "$1/etc/podwright"
    mount --bind "$lab/native" "$1/usr/local/lib/podwright"
}
over /etc etc
over /usr/local local
mkdir -p "$lab/podwright" "$lab/native"
site ""
mount --bind "$lab/run" /run/podwright
if [ -n "$root" ]; then
    over "$root" root
    for d in proc sys dev run var/tmp; do mkdir -p "$root/$d"; mount --rbind "/$d" "$root/$d"; done
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount --bind /etc/hosts "$root/etc/hosts"
    site "$root"
    mount --bind "$root/usr/include/slurm" /usr/include/slurm
fi
touch "$lab/standard-ready"
exec sleep infinity
"""


class _Chroot(Inside):
    """Another root in a namespace."""

    def wrap(self, argv: Sequence[str]) -> list[str]:
        return super().wrap(["chroot", str(self._root), *argv])


class StandardLab(NativeLab):
    """`with StandardLab(release=...) as lab: lab.type("podwright slurm build")`.

    A site that has its Slurm and its vipu-server, and nothing of Podwright in that Slurm yet.
    """

    def __init__(self, *, release: Release, **options: Any) -> None:
        super().__init__(release=Release(release.name, None), **options)
        self.release = release
        root = release.root or Path("/")
        argv = ["unshare", "-m", "-n", "--propagation", "private", "bash", "-c", _MOUNTS]
        self._holder = subprocess.Popen(
            [*argv, "-", str(self.folder), str(root)],
            env={**os.environ, "PODWRIGHT_LAB": str(self.folder)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        poll("its folders", self._mounted)
        self._beside = Inside(self._holder.pid, spaces="-m -n")
        at = self._holder.pid
        self._here = _Chroot(at, root, spaces="-m -n") if release.root else self._beside

    def _mounted(self) -> bool:
        if self._holder.poll() is not None:
            raise LabError("the mounts of the lab failed")
        return (self.folder / "standard-ready").exists()

    @property
    def server_socket(self) -> Path:
        return self.folder / "run" / "server.sock"

    def environment(self) -> dict[str, str]:
        """Nothing says where slurm.conf is."""
        found = super().environment()
        del found["SLURM_CONF"]
        return found

    def where(self, argv: Sequence[str]) -> list[str]:
        return self._beside.wrap(argv)

    def start(self) -> None:
        self._start_munged()
        self.port = 8090
        self.start_server()
        self.start_daemon("slurmctld", clean=True)
        for name in self.nodes:
            self.start_daemon(name)
        self.wait_for_nodes()

    def stop(self) -> None:
        super().stop()
        with contextlib.suppress(ProcessLookupError):
            self._holder.send_signal(signal.SIGKILL)
        self._holder.wait()

    def typed(self) -> Mapping[str, str]:
        """The environment of who types: our commands, and the release's Slurm."""
        slurm = self._slurm_beside() or {"PATH": self.environment()["PATH"]}
        return {
            **self.environment(),
            "PATH": f"{Path(sys.executable).parent}:{slurm['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """A line, as root types it on slurmctld's host."""
        return subprocess.run(
            self.where(["env", "-C", f"{self.folder}/out", "bash", "-ec", line]),
            env=dict(self.typed()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def leave(self, line: str, *, user: str) -> None:
        """A line whose program goes on: the service."""
        who = [] if user == "root" else _reading_all(user, *ENTER)
        with (self.folder / "log" / "service.log").open("ab") as log:
            self._processes["service"] = subprocess.Popen(
                self.where([*who, *shlex.split(line, comments=True)]),
                env=dict(self.typed()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
