"""Selects the Kubernetes for the tests: that of PODWRIGHT_KUBE_BIN, else 1.20.2, built by build.sh.

Programs that this folder lacks come from the machine (only nodes need containerd, runc, network
plugins and busybox).
"""

import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.outer.lab import LabError

#: Where kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl and etcd lie.
#: Read when this is loaded: tests run without the developer's own settings.
_NAMED = os.environ.get("PODWRIGHT_KUBE_BIN", "")
#: Where a machine has such programs, and the plugins in `cni`.
_MACHINE = tuple(map(Path, ("/usr/sbin", "/usr/bin", "/usr/lib")))


@dataclass(frozen=True)
class Binaries:
    """Programs by name, from the first folder that has them."""

    folders: tuple[Path, ...]

    def __getitem__(self, name: str) -> str:
        """Return the path of a program. Raises LabError when no folder has it."""
        for folder in self.folders:
            if (folder / name).exists():
                return str(folder / name)
        raise LabError(f"no {name} in {', '.join(map(str, self.folders))}")

    @property
    def path(self) -> str:
        """Return the PATH for daemons that start each other by name."""
        return ":".join([*map(str, self.folders), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])

    @property
    def version(self) -> tuple[int, int]:
        """Return the version, such as (1, 20)."""
        return _version(self["kube-apiserver"])


@cache
def binaries() -> Binaries:
    """Return the programs. Builds missing ones, which takes minutes. Raises LabError."""
    if _NAMED:
        return Binaries((Path(_NAMED), *_MACHINE))
    done = subprocess.run(
        [str(Path(__file__).parents[1] / "build.sh")], stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise LabError("Kubernetes could not be built; build.sh said why")
    built = Path(done.stdout.strip())
    return Binaries((built,))


@cache
def _version(program: str) -> tuple[int, int]:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"v(\d+)\.(\d+)", done.stdout)
    if not found:
        raise LabError(f"{program} --version: {done.stdout}")
    return int(found[1]), int(found[2])
