"""The next Debian's Slurm (24.11) in a folder of its own, made once a machine by debootstrap.

The mirror is whatever the machine's own apt sources name, read when it is needed.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from ._folder import LabError
from ._places import need

CACHE = Path("/var/cache/podwright-lab")
RELEASE = "trixie"
PACKAGES = (
    "slurmctld,slurmd,slurmdbd,slurm-client,slurm-wlm-basic-plugins,libslurm-dev,munge,hostname,"
    "procps"
)


def newer_slurm() -> Path:
    """The folder with the newer release; half a minute the first time. Raises LabError."""
    need("debootstrap")
    CACHE.mkdir(parents=True, exist_ok=True)
    # Other packages are another folder: somebody may be in the old one.
    root = CACHE / f"{RELEASE}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / ".complete").exists():
            return root
        if root.exists():
            shutil.rmtree(root)
        mirror = debian_mirror()
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, root, mirror],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise LabError(f"debootstrap {RELEASE} failed:\n{made.stdout[-2000:]}{made.stderr}")
        (root / ".complete").touch()
    return root


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
