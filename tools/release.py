"""Makes a release of the commit that is checked out: `make release`, into dist/.

Wheel and source archive, a CycloneDX bill of materials, the licences of all that a release
installs, checksums. The same commit gives the same bytes, on whatever day and in whatever folder:
only what git has goes in, and the time is the commit's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMS = "SHA256SUMS"


def release(root: Path, into: Path, *, commit: str = "HEAD") -> list[Path]:
    """Write a release of a commit into a folder that holds nothing else; its files."""
    into.mkdir(parents=True, exist_ok=True)
    if left := sorted(path.name for path in into.iterdir()):
        raise SystemExit(f"{into} is not empty ({left[0]}): remove it, or name another with --into")
    when = commit_time(root, commit)
    with tempfile.TemporaryDirectory() as scratch:
        source = export(root, Path(scratch), commit)
        record_commit(root, source, commit)
        build(source, into, when)
        version = _version(source)
        _describe(source, into, version, when)
    return write_sums(into)


def write_sums(folder: Path) -> list[Path]:
    """Write the checksums of the files of a folder beside them; all files."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
    (folder / SUMS).write_text(sums)
    return [*files, folder / SUMS]


def commit_time(root: Path, commit: str) -> int:
    """When a commit was made, in seconds since 1970."""
    return int(_git(root, "log", "-1", "--format=%ct", commit))


def export(root: Path, into: Path, commit: str = "HEAD") -> Path:
    """The files of a commit, without git, in a folder in `into`."""
    source = into / "podwright"
    unpack(_git(root, "archive", commit), source)
    return source


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack a tar archive, compressed by gzip or not, into a folder.

    The program `tar` does it, because `tarfile` has filters for what an archive may write only
    since Python 3.11.4, and Debian 12 has 3.11.2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    gzip = ["--gzip"] if archive[:2] == b"\x1f\x8b" else []
    command = ["tar", "--extract", *gzip, "--no-same-owner", "--directory", str(folder)]
    subprocess.run(command, input=archive, check=True)


def record_commit(root: Path, source: Path, commit: str = "HEAD") -> None:
    """Write down beside the package which commit it is, for `podwright version`."""
    short = _git(root, "rev-parse", "--short=12", commit)
    (source / "src" / "podwright" / "_commit.txt").write_bytes(short)


def build(source: Path, into: Path, when: int) -> None:
    """Wheel and source archive, without a network. Raises CalledProcessError."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", into],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0"},
        check=True,
        capture_output=True,
    )


def _describe(source: Path, into: Path, version: str, when: int) -> None:
    from tools.sbom import licences, sbom
    from tools.wheels import read_lock

    pins = read_lock(source / "requirements" / "release.lock")
    (into / f"podwright-{version}.cdx.json").write_text(sbom(version, pins, when))
    (into / f"podwright-{version}-licences.txt").write_text(licences(pins))


def _version(source: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"],
        cwd=source,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", root, *words], capture_output=True, check=True).stdout


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="an empty folder (dist)")
    parser.add_argument("--commit", default="HEAD", help="what to release (HEAD)")
    arguments = parser.parse_args()
    if _git(ROOT, "status", "--porcelain"):
        print("note: what is not committed is not in the release", file=sys.stderr)
    for path in release(ROOT, arguments.into, commit=arguments.commit):
        print(f"{path.stat().st_size:>10}  {path}")


if __name__ == "__main__":
    main()
