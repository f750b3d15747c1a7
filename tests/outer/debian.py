"""A clean Debian, without a network, whose packages a test installs."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.outer.lab._release import clean

#: A root of its own over a clean one: what is written goes with the process that holds it.
_ENTER = """
mount -t tmpfs tmpfs "$2"; mkdir "$2/up" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/up,workdir=$2/work" "$2/root"
for d in proc sys dev; do mount --rbind "/$d" "$2/root/$d"; done
mount -t tmpfs tmpfs "$2/root/run"; mount -t tmpfs -o mode=1777 tmpfs "$2/root/tmp"
mkdir "$2/root/debs"; mount --bind "$3" "$2/root/debs"
ip link set lo up
touch "$2/root/run/entered"
exec sleep infinity
"""


class Debian:
    """A clean Debian of our own, with packages to install in /debs."""

    def __init__(self, suite: str, folder: Path, debs: Path) -> None:
        self.suite, self.root = suite, folder / "root"
        words = ["unshare", "-mn", "--propagation", "private", "bash", "-euc", _ENTER, "-"]
        self._holder = subprocess.Popen([*words, str(clean(suite)), str(folder), str(debs)])
        self._processes: list[subprocess.Popen[bytes]] = []
        until(lambda: self.here(["test", "-e", f"{self.root}/run/entered"]).returncode == 0)

    def here(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of this machine's where that root is mounted."""
        enter = ["nsenter", "-t", str(self._holder.pid), "-m", "-n", "--"]
        assert self._holder.poll() is None
        return subprocess.run([*enter, *argv], capture_output=True, text=True, check=False)

    def inside(self, line: str, user: str = "root") -> list[str]:
        """The words that run a line of shell in that Debian, with nothing of ours in it."""
        enter = ["nsenter", "-t", str(self._holder.pid), "-m", "-n", "--"]
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        environ = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
        who = as_user if user != "root" else []
        return [*enter, "chroot", str(self.root), *environ, *who, "sh", "-ec", line]

    def run(self, line: str, user: str = "root") -> str:
        """What a line of shell that must succeed prints."""
        done = subprocess.run(self.inside(line, user), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start_server(self) -> subprocess.Popen[bytes]:
        """What the unit starts, as the unit and what the package adds to it say."""
        unit = self.run("cat /usr/lib/systemd/system/vipu-server.service")
        unit += self.run("cat /usr/lib/systemd/system/vipu-server.service.d/*.conf")
        said = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
        capabilities = [f"+{name[4:].lower()}" for name in said["CapabilityBoundingSet"].split()]
        words = ["setpriv", f"--reuid={said['User']}", f"--regid={said['Group']}", "--init-groups"]
        words += ["--no-new-privs", "--bounding-set=" + ",".join(["-all", *capabilities])]
        start = f"umask {said['UMask']}; . /etc/podwright/vipu-server.env; "
        start += f"exec {shlex.join(words)} {said['ExecStart']}"
        process = subprocess.Popen(self.inside(start))
        self._processes.append(process)
        until(lambda: subprocess.run(self.inside("vipu --server-version")).returncode == 0)
        return process

    def kill_server(self, process: subprocess.Popen[bytes]) -> None:
        """By force; nsenter becomes what it starts."""
        process.kill()
        process.wait()

    def close(self) -> None:
        """All that was started, and all that was written, is gone."""
        for process in [*self._processes, self._holder]:
            process.send_signal(signal.SIGKILL)
            process.wait()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)
