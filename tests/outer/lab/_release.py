"""The Slurms that the tests know: this machine's own, and those of later Debians in folders of
their own, each made once a machine by debootstrap.

The mirror is whatever the machine's own apt sources name, read when it is needed. Debian's testing
suite moves: tests run on the version they were proven with, as long as this machine or the archive
has it; under `make soak` on the latest. Where the archive has gone on, a line at the end says so.
"""

import fcntl
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ._folder import LabError
from ._places import need

CACHE = Path("/var/cache/podwright-lab")
PACKAGES = (
    "slurmctld,slurmd,slurmdbd,slurm-client,slurm-wlm-basic-plugins,libslurm-dev,munge,hostname,"
    "procps"
)


@dataclass(frozen=True)
class Suite:
    """A Debian: its name, debootstrap's script for it ("": one of that name).

    proven: the version of its package slurmctld that the tests were last run with, for a suite that
    moves. packages: beside those that every Debian has.
    """

    name: str
    script: str = ""
    proven: str = ""
    packages: str = PACKAGES


SUITES = {
    "middle": Suite("trixie"),
    "newest": Suite("forky", script="sid", proven="26.05.5-1"),
}
#: Debians as their users install packages on them: with what ours depend on, and nothing more.
CLEAN = {
    name: Suite(name, packages="python3,adduser,slurm-client") for name in ("bookworm", "trixie")
}


#: Where a Slurm lies that was built here (bin, sbin, include), to be tested as `oldest`.
PREFIX = os.environ.get("PODWRIGHT_SLURM_PREFIX", "")


@dataclass(frozen=True)
class Release:
    """One Slurm. root: the folder of the Debian that it is in; None: this machine itself, or
    PREFIX on it."""

    name: str
    root: Path | None

    @property
    def version(self) -> tuple[int, int]:
        """(22, 5)"""
        major, minor = _version(self.root)
        return major, minor

    @property
    def headers(self) -> str:
        """Where its C headers lie, where the compiler would not look by itself."""
        if self.root:
            return f"{self.root}/usr/include"
        return f"{PREFIX}/include" if PREFIX else ""

    @property
    def path(self) -> str:
        """PATH for its commands and daemons."""
        usual = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
        return usual if self.root or not PREFIX else f"{PREFIX}/bin:{PREFIX}/sbin:{usual}"


def release(name: str) -> Release:
    """`oldest`, `middle` or `newest`; a minute and more where it is made first. Raises LabError."""
    return Release(name, None if name == "oldest" else _root(SUITES[name]))


def clean(suite: str) -> Path:
    """The folder of a clean Debian, `bookworm` or `trixie`; never change what is in it."""
    return _root(CLEAN[suite])


def moved_on() -> Iterator[str]:
    """A line for each suite whose archive, when last looked at, had gone beyond what is proven."""
    for name, suite in SUITES.items():
        seen = _seen(suite)
        there = seen.read_text() if seen.exists() else suite.proven
        if there != suite.proven:
            yield (
                f"{name}: Debian {suite.name} has Slurm {there}, newer than {suite.proven} which "
                "the tests were proven with; make soak takes it"
            )


@cache
def _root(suite: Suite) -> Path:
    need("debootstrap")
    CACHE.mkdir(parents=True, exist_ok=True)
    # Other packages are another folder: somebody may be in the old one.
    base = CACHE / f"{suite.name}-{hashlib.sha256(suite.packages.encode()).hexdigest()[:8]}"
    with (CACHE / f"{base.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not suite.proven:
            return _kept(base) or _made(suite, base, debian_mirror())
        proven = base.with_name(f"{base.name}-{suite.proven}")
        latest = os.environ.get("PODWRIGHT_SOAK") == "1"
        if not latest and _kept(proven):
            return proven
        there = _archived(suite)
        wanted = base.with_name(f"{base.name}-{there}")
        return _kept(wanted) or _made(suite, wanted, debian_mirror())


def _kept(root: Path) -> Path | None:
    return root if (root / ".complete").exists() else None


def _made(suite: Suite, root: Path, mirror: str) -> Path:
    if root.exists():
        shutil.rmtree(root)
    what = ["--variant=minbase", f"--include={suite.packages}", suite.name, str(root), mirror]
    done = subprocess.run(
        ["debootstrap", *what, *([suite.script] if suite.script else [])],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"debootstrap {suite.name} failed:\n{done.stdout[-2000:]}{done.stderr}")
    (root / ".complete").touch()
    return root


def _archived(suite: Suite) -> str:
    """The version of slurmctld in the mirror's suite, looked up and kept for `moved_on`."""
    of = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True)
    index = f"{debian_mirror()}/dists/{suite.name}/main/binary-{of.stdout.strip()}/Packages.xz"
    try:
        with urllib.request.urlopen(index, timeout=300) as answer:
            text = lzma.decompress(answer.read()).decode()
    except (OSError, lzma.LZMAError) as error:
        raise LabError(f"{index}: {error}") from None
    found = re.search(r"^Package: slurmctld\n(?:.+\n)*?Version: (.+)$", text, re.MULTILINE)
    if not found:
        raise LabError(f"{index}: no slurmctld")
    _seen(suite).write_text(found[1])
    return found[1]


def _seen(suite: Suite) -> Path:
    return CACHE / f"{suite.name}.archive"


@cache
def _version(root: Path | None) -> tuple[int, int]:
    need("slurmctld")
    own = f"{PREFIX}/sbin/slurmctld" if PREFIX else "slurmctld"
    argv = ["chroot", str(root), "slurmctld", "-V"] if root else [own, "-V"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    if not found:
        raise LabError(f"slurmctld -V: {done.stdout}{done.stderr}")
    return int(found[1]), int(found[2])


def debian_mirror(etc: Path = Path("/etc/apt")) -> str:
    """The first mirror of Debian proper in the apt sources (both their formats)."""
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    for path in files:
        if path.suffix not in {".list", ".sources"} or not path.is_file():
            continue
        for line in path.read_text().splitlines():
            found = re.match(r"\s*(?:URIs:\s*|deb\s+(?:\[[^\]]*\]\s+)?)(\S+)", line)
            if found and found[1].rstrip("/").endswith("/debian"):
                return found[1]
    raise LabError("no mirror of Debian in this machine's apt sources")
