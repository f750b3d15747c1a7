"""Finds the Slurms on this machine that a twin can be made of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from podwright.slurm.site.releases import SlurmVersion
from podwright.slurm.twin._twin_types import InstalledSlurm

PREFIX_VARIABLE = "PODWRIGHT_SLURM_PREFIX"


def find_slurm(version: SlurmVersion | None = None, *, path: str = "") -> InstalledSlurm | None:
    """Return a Slurm of this version, or of any version if it is None; None where there is no such
    Slurm.

    path: only this place is searched: the prefix of a Slurm that was built there (with sbin/), or
    the folder of an unpacked system (with usr/sbin/). Otherwise the folder in
    PODWRIGHT_SLURM_PREFIX is searched, then PATH and the folders where packages put daemons.
    """
    for root, sbin in _candidate_folders(path):
        installed = _slurm_in_folder(root, sbin)
        if installed and (version is None or installed.version == version):
            return installed
    return None


def _candidate_folders(path: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of a root, and the folder of the daemons below it."""
    for prefix in [path] if path else [os.environ.get(PREFIX_VARIABLE, "")]:
        if prefix and _path_exists(prefix, "/usr/sbin/slurmctld"):
            yield prefix, "/usr/sbin"
        elif prefix:
            yield "/", f"{Path(prefix).absolute()}/sbin"
    if path:
        return
    slurmctld_path = shutil.which("slurmctld")
    if slurmctld_path:
        yield "/", str(Path(slurmctld_path).parent)
    yield from (("/", "/usr/sbin"), ("/", "/usr/local/sbin"), ("/", "/opt/slurm/sbin"))


def _slurm_in_folder(root: str, sbin: str) -> InstalledSlurm | None:
    release = _slurmctld_release(root, sbin)
    version_match = re.match(r"(\d+)\.(\d+)", release)
    if not version_match:
        return None
    bin_folder = sbin.removesuffix("/sbin") + "/bin"
    if not _path_exists(root, f"{bin_folder}/sbatch"):
        bin_folder = "/usr/bin"
    return InstalledSlurm(
        (int(version_match[1]), int(version_match[2])), root, sbin, bin_folder, release
    )


def _path_exists(root: str, path: str) -> bool:
    return os.path.lexists(f"{root.rstrip('/')}{path}")


def _slurmctld_release(root: str, sbin: str) -> str:
    """Return the release, such as `26.05.5`, or "" where slurmctld is missing or does not run."""
    if not _path_exists(root, f"{sbin}/slurmctld"):
        return ""
    if root != "/":
        # It cannot be run here: its libraries belong to its own system.
        return _library_release(root, sbin)
    try:
        version_result = subprocess.run(
            [f"{sbin}/slurmctld", "-V"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (
        version_result.stdout.split()[-1]
        if version_result.returncode == 0 and version_result.stdout.split()
        else ""
    )


def _library_release(root: str, sbin: str) -> str:
    """Return the release of a Slurm in an unpacked system, from the version text in its library."""
    libraries = Path(root, "usr/lib").glob("*/slurm*/libslurmfull.so")
    for library in (*libraries, *Path(root, "usr/lib64/slurm").glob("libslurmfull.so")):
        try:
            library_bytes = library.read_bytes()
        except OSError:
            continue
        version_match = re.search(rb"\x00(\d\d\.\d\d\.\d+)\x00", library_bytes)
        if version_match:
            return version_match[1].decode()
    return ""
