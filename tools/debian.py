"""Debian packages of a release: `make debian`, into dist/.

`podwright` holds the locked environment as a folder of its own below /usr/lib: Debian's grpcio and
protobuf are too old. Nothing is loaded when it is installed. `podwright-slurm` holds what is
compiled for one release's Slurm. Units, manual pages and completion come with them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.release import ROOT, SUMS, build, commit_time, export, record_commit, write_sums
from tools.wheels import Pin, read_lock, without_markers

PACKAGING = ROOT / "packaging"
PREFIX = Path("usr/lib/podwright")
#: Machines as Debian and as wheels name them.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class Suite(NamedTuple):
    """A Debian: what stands in a package's version, its Python, its C library, its Slurm."""

    mark: str
    python: tuple[int, int]
    glibc: tuple[int, int]
    slurm: str
    next_slurm: str


SUITES = {
    "bookworm": Suite("deb12", (3, 11), (2, 36), "22.05", "22.06"),
    "trixie": Suite("deb13", (3, 13), (2, 41), "24.11", "24.12"),
}


def locked_wheels(suite: Suite, machine: str, into: Path) -> list[Path]:
    """The wheels of the release's lock for a Debian and a machine, in a folder; by pip."""
    pins = without_markers(read_lock(ROOT / "requirements" / "release.lock"), machine, suite.python)
    lock = into / "lock"
    lock.write_text("".join(map(_line, pins)))
    platforms = [f"manylinux_2_{n}_{machine}" for n in range(suite.glibc[1], 4, -1)]
    platforms += [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")]
    version = f"{suite.python[0]}.{suite.python[1]}"
    words = ["download", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
    words += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", version]
    words += [f"--platform={platform}" for platform in platforms]
    subprocess.run(
        [sys.executable, "-m", "pip", *words, "-d", into / "wheels", "-r", lock], check=True
    )
    return sorted((into / "wheels").iterdir())


def _line(pin: Pin) -> str:
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(pin.hashes))
    return f"{pin.name}=={pin.version} {hashes}\n"


def environment(tree: Path, wheels: list[Path], suite: Suite) -> None:
    """A virtual environment of the Debian's Python with these wheels, below a tree's root."""
    from installer import install
    from installer.destinations import SchemeDictionaryDestination
    from installer.sources import WheelFile

    prefix = tree / PREFIX
    version = f"{suite.python[0]}.{suite.python[1]}"
    site = prefix / "lib" / f"python{version}" / "site-packages"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python3").symlink_to(f"/usr/bin/python{version}")
    (prefix / "bin" / "python").symlink_to("python3")
    settings = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    (prefix / "pyvenv.cfg").write_text(settings)
    schemes = {
        "purelib": str(site),
        "platlib": str(site),
        "scripts": str(prefix / "bin"),
        "data": str(prefix),
        "headers": str(prefix / "include"),
    }
    for wheel in wheels:
        destination = SchemeDictionaryDestination(
            schemes, interpreter=f"/{PREFIX}/bin/python3", script_kind="posix"
        )
        with WheelFile.open(wheel) as source:
            install(source, destination, additional_metadata={"INSTALLER": b"podwright"})


def server_tree(tree: Path, wheels: list[Path], suite: Suite) -> None:
    """All files of the package `podwright`."""
    from podwright.cli.about._command_parsers import COMMANDS, SECTIONS, page
    from podwright.cli.about._completion import completion

    environment(tree, wheels, suite)
    for command in COMMANDS:
        link = _place(tree / "usr/bin" / command)
        link.symlink_to(f"../lib/podwright/bin/{command}")
        number = SECTIONS[command]
        manual = tree / f"usr/share/man/man{number}/{command}.{number}.gz"
        _put(manual, _packed(page(command).encode()))
        bash = completion("bash", command).encode()
        _put(tree / "usr/share/bash-completion/completions" / command, bash)
        zsh = completion("zsh", command).encode()
        _put(tree / f"usr/share/zsh/vendor-completions/_{command}", zsh)
    units = tree / "usr/lib/systemd/system"
    for unit in ("vipu-server.service", "vipu-agent@.service"):
        _copy(PACKAGING / "systemd" / unit, units / unit)
    debian = PACKAGING / "debian"
    _copy(debian / "vipu-server.conf", units / "vipu-server.service.d/account.conf")
    _copy(debian / "vipu-agent.conf", units / "vipu-agent@.service.d/account.conf")
    _copy(debian / "tmpfiles.conf", tree / "usr/lib/tmpfiles.d/podwright.conf")
    _copy(debian / "vipu-server.env", tree / "etc/podwright/vipu-server.env")
    _documents(tree, "podwright")


def slurm_tree(tree: Path, include: str) -> None:
    """All files of the package `podwright-slurm`. include: where that Slurm's headers lie."""
    from podwright.guests.slurm.setup import build as compile_for

    compile_for(_place(tree / PREFIX / "slurm/x").parent, include=include)
    for unit in ("podwright-slurm.service", "podwright-twin.service"):
        _copy(PACKAGING / "systemd" / unit, tree / "usr/lib/systemd/system" / unit)
    _documents(tree, "podwright-slurm")


def _documents(tree: Path, package: str) -> None:
    folder = tree / "usr/share/doc" / package
    _copy(ROOT / "LICENSE", folder / "copyright")
    _put(folder / "changelog.gz", _packed((ROOT / "CHANGELOG.md").read_bytes()))


def pack(tree: Path, package: str, into: Path, fields: Mapping[str, str], when: int) -> Path:
    """The package of a tree: with the same time for everything, the same bytes each time."""
    control = tree / "DEBIAN"
    if control.exists():
        shutil.rmtree(control)
    control.mkdir()
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    size = str(sum(path.stat().st_size for path in files) // 1024 + 1)
    template = (PACKAGING / "debian" / f"{package}.control").read_text()
    (control / "control").write_text(template.format(**{**fields, "size": size}))
    sums = [f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n" for p in files]
    (control / "md5sums").write_text("".join(sums))
    settings = [
        f"/{path.relative_to(tree)}\n" for path in files if path.is_relative_to(tree / "etc")
    ]
    if settings:
        (control / "conffiles").write_text("".join(settings))
    for script in ("postinst", "prerm", "postrm"):
        source = PACKAGING / "debian" / f"{package}.{script}"
        if source.exists():
            _copy(source, control / script)
            (control / script).chmod(0o755)
    for path in (tree, *tree.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    made = into / f"{package}_{fields['version']}_{fields['architecture']}.deb"
    level = ["-Zgzip", "-z1"] if os.environ.get("PODWRIGHT_QUICK") else ["-Zxz"]
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", *level, "--build", tree, made],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(when)},
        check=True,
        capture_output=True,
    )
    return made


def fields(suite: Suite, version: str, architecture: str) -> dict[str, str]:
    """What stands in the control files."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    major, minor = suite.python
    return {
        "version": f"{version}-1~{suite.mark}",
        "architecture": architecture,
        "python": f"{major}.{minor}",
        "next_python": f"{major}.{minor + 1}",
        "slurm": suite.slurm,
        "next_slurm": suite.next_slurm,
        "homepage": settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"],
    }


def packages(
    name: str, into: Path, *, architecture: str, slurm_include: str, own: Path, when: int
) -> Iterator[Path]:
    """The packages for one Debian. own: our wheel. slurm_include: empty leaves out the second."""
    suite = SUITES[name]
    version = own.name.split("-")[1]
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheels = [*locked_wheels(suite, MACHINES[architecture], folder), own]
        server_tree(folder / "podwright", wheels, suite)
        told = fields(suite, version, architecture)
        yield pack(folder / "podwright", "podwright", into, told, when)
        if slurm_include:
            slurm_tree(folder / "podwright-slurm", slurm_include)
            yield pack(folder / "podwright-slurm", "podwright-slurm", into, told, when)


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _put(path: Path, data: bytes) -> None:
    _place(path).write_bytes(data)
    path.chmod(0o644)


def _copy(source: Path, target: Path) -> None:
    _put(target, source.read_bytes())


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def headers_of(include: Path) -> str:
    """The release of Slurm whose headers are in a folder, as "22.05"; empty: there are none."""
    file = include / "slurm" / "slurm_version.h"
    text = file.read_text() if file.exists() else ""
    number = re.search(r"^#define SLURM_VERSION_NUMBER (0x[0-9a-fA-F]+)", text, re.MULTILINE)
    if not number:
        return ""
    version = int(number[1], 16)
    return f"{version >> 16 & 0xFF:02}.{version >> 8 & 0xFF:02}"


def slurm_headers(name: str, architecture: str, include: Path) -> Path:
    """The folder, where podwright-slurm can be compiled with it here for that Debian.

    Raises NoHeaders, which says what is missing.
    """
    suite = SUITES[name]
    if MACHINES[architecture] != platform.machine():
        raise NoHeaders(name, f"it is compiled on {architecture} itself")
    found = headers_of(include)
    if found != suite.slurm:
        has = f"those of Slurm {found}" if found else "none"
        raise NoHeaders(
            name,
            f"it needs the headers of Slurm {suite.slurm}, and {include} has {has}. Install "
            f"libslurm-dev of {name}, or name its folder: --slurm-include {name}=DIR",
        )
    return include


class NoHeaders(Exception):
    """podwright-slurm of a Debian cannot be compiled. reason: what is missing."""

    def __init__(self, suite: str, reason: str) -> None:
        super().__init__(f"podwright-slurm for {suite} is not built: {reason}")
        self.suite, self.reason = suite, reason


def _suite_folder(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if name not in SUITES or not folder:
        raise argparse.ArgumentTypeError(f"not SUITE=DIR, where SUITE is {' or '.join(SUITES)}")
    return name, Path(folder).absolute()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.debian", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--suite", choices=SUITES, action="append", help="default: all")
    parser.add_argument("--architecture", choices=MACHINES, default="amd64")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="a folder (dist)")
    parser.add_argument(
        "--slurm-include",
        metavar="SUITE=DIR",
        type=_suite_folder,
        action="append",
        default=[],
        help="folder with the headers of a Debian's Slurm, for podwright-slurm, as libslurm-dev of "
        "that Debian has them in /usr/include; /usr/include where it is not given",
    )
    arguments = parser.parse_args()
    named = dict(arguments.slurm_include)
    when = commit_time(ROOT, "HEAD")
    with tempfile.TemporaryDirectory() as scratch:
        source = export(ROOT, Path(scratch))
        record_commit(ROOT, source)
        build(source, Path(scratch) / "own", when)
        (own,) = (Path(scratch) / "own").glob("*.whl")
        for name in arguments.suite or SUITES:
            folder = named.get(name, Path("/usr/include"))
            try:
                include = str(slurm_headers(name, arguments.architecture, folder))
            except NoHeaders as missing:
                if name in named:
                    parser.error(str(missing))
                print(missing, file=sys.stderr)
                include = ""
            for made in packages(
                name,
                arguments.into,
                architecture=arguments.architecture,
                slurm_include=include,
                own=own,
                when=when,
            ):
                print(made)
    if (arguments.into / SUMS).exists():
        write_sums(arguments.into)


if __name__ == "__main__":
    main()
