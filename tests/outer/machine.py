"""A machine of its own to type a page on: this one's files, where nothing that is written stays,
with its own host name, network and processes. All of it ends with the first process in it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.outer.lab import LabError, Release, poll
from tests.pages import Block

_VENV = Path(sys.executable).parent.parent
#: $1: a folder. $2: the root of a Slurm's release, or nothing. $3: the checkout. $4, $5: Python and
#: its packages. Slurm looks for no address, not even 127.0.0.1, where there is loopback alone.
_BOOT = """\
set -e
at=$1/machine
mount -t tmpfs tmpfs "$at"
mkdir "$at/root"
over() {
    mkdir "$at/$3" "$at/$3.work"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$at/$3,workdir=$at/$3.work" "$2"
}
over / "$at/root" all
cd "$at/root"
mkdir typed
mount --bind "$1/typed" typed
if [ -n "$2" ]; then
    over "$2/usr:/usr" usr usr
    for d in usr/lib/*/slurm-wlm usr/include/slurm; do mount --bind "$2/$d" "$d"; done
fi
mount -t proc proc proc
for d in dev sys; do mount --rbind "/$d" "$d"; done
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
for d in "$4" "$5"; do
    [ "$d" = /usr ] && continue
    mkdir -p ".$d"
    mount --rbind "$d" ".$d"
    while d=$(dirname "$d") && [ "$d" != / ]; do chmod o+x ".$d"; done
done
cp -a "$3" src
# Its accounts are those of the system alone: a page may make any account for a person.
person='$3 >= 1000 && $3 < 60000 { print $1 }'
names=$(awk -F: "$person" etc/passwd etc/group | sort -u | tr '\\n' ' ')
for file in etc/passwd etc/shadow etc/group etc/gshadow; do
    awk -F: -v names="$names" \\
        'BEGIN { n = split(names, list, " "); while (n) person[list[n--]] } !($1 in person)' \\
        "$file" >tmp/accounts
    cat tmp/accounts >"$file"
done
mount -t tmpfs -o mode=755 tmpfs home
hostname tutorial
printf '127.0.0.1 localhost\\n192.0.2.1 tutorial\\n' >etc/hosts
ip link set lo up
ip link add out0 type veth peer name out1
ip addr add 192.0.2.1/24 dev out0
ip link set out0 up
ip link set out1 up
# Containers in it want a root that is the namespace's own.
pivot_root . mnt
umount -l mnt
exec chroot . bash /dev/fd/9 9<&0 </dev/null
"""


class Machine:
    """`with Machine(release, folder, checkout) as machine: machine.type(block)`, for one shell.

    folder: an empty one, that lasts as long. pip finds all that we need installed already: what the
    tests themselves run on.
    """

    def __init__(self, release: Release, folder: Path, checkout: Path) -> None:
        self._typed = folder / "typed"
        self._typed.mkdir()
        (folder / "machine").mkdir()
        words = ["unshare", "-mnpu", "--fork", "--kill-child", "--propagation", "private"]
        words += ["bash", "-c", _BOOT, "-", str(folder), str(release.root or ""), str(checkout)]
        python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        with (folder / "boot").open("wb") as said:
            self._shell = subprocess.Popen(
                [*words, sys.base_prefix, str(_VENV)],
                env={
                    "PATH": f"{sys.base_prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin:{_VENV}/bin",
                    "HOME": "/root",
                    "LC_ALL": "C.UTF-8",
                    "PYTHONPATH": f"{_VENV}/lib/{python}/site-packages",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say so
                    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                    "PIP_ROOT_USER_ACTION": "ignore",
                },
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
            )
        self._boot = folder / "boot"
        self._count = 0
        self.type(Block("set -e; cd /src\n", ""))

    def type(self, block: Block) -> None:
        """Until its lines have ended and what the page says is there.

        Raises LabError where a line fails, or prints something else.
        """
        self._count += 1
        out, end = self._typed / f"{self._count}", self._typed / f"{self._count}.end"
        lines = f"exec >/typed/{out.name} 2>&1\n{block.typed}\ntouch /typed/{end.name}\n"
        assert self._shell.stdin
        self._shell.stdin.write(lines.encode())
        self._shell.stdin.flush()

        def ended() -> bool:
            if self._shell.poll() is not None:
                raise LabError(f"{block.typed}\n{self._said(out)}")
            return end.exists()

        poll(f"the end of {block.typed}", ended)
        with contextlib.suppress(LabError):
            poll("what it prints", lambda: block.fits(self._said(out)), seconds=50)
        said = self._said(out)
        assert block.fits(said), f"{block.typed}\nprinted:\n{said}"

    def _said(self, out: Path) -> str:
        return (out if out.exists() else self._boot).read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._shell.stdin
        self._shell.stdin.close()
        self._shell.kill()
        self._shell.wait()
