"""Which wheels the locked dependencies have: recorded by `make lock`, asked by a test.

A lock has hashes alone, which do not say for what machine a file is. `requirements/wheels.txt` has
the name of each wheel beside its hash, and no address, so that the question needs no network.
"""

from __future__ import annotations

import re
import sys
import tomllib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"
RECORD = REQUIREMENTS / "wheels.txt"
#: The machines that a release is for, and the oldest C library on them (Rocky 8's).
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 28)
PYTHONS = ((3, 11), (3, 12), (3, 13))
_LINUX = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


class Pin(NamedTuple):
    """A locked requirement and the hashes of its files."""

    requirement: Requirement
    hashes: frozenset[str]

    @property
    def name(self) -> str:
        """As PyPI compares names."""
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        """The version that it is pinned to."""
        (one,) = self.requirement.specifier
        return one.version


def read_lock(path: Path) -> list[Pin]:
    """The pins of a lock, in its order."""
    text = path.read_text().replace("\\\n", " ")
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        words, *hashes = re.split(r"\s+--hash=sha256:", line)
        found.append(Pin(Requirement(words), frozenset(hashes)))
    return found


def read_record(path: Path = RECORD) -> dict[str, str]:
    """The names of wheels by their hashes."""
    return dict(re.findall(r"^(\S+)  (\S+)$", path.read_text(), re.MULTILINE))


def record(pylock: Path) -> Iterator[str]:
    """The lines of wheels.txt, of a lock as PEP 751 has it: hash and file name."""
    for package in tomllib.loads(pylock.read_text())["packages"]:
        for wheel in package.get("wheels", ()):
            name = wheel.get("name") or wheel["url"].rpartition("/")[2]
            yield f"{wheel['hashes']['sha256']}  {urllib.parse.unquote(name)}"


def without_wheel(
    pins: Sequence[Pin], names: Mapping[str, str], machine: str, python: tuple[int, int]
) -> list[str]:
    """The pins that apply to that Linux machine and Python and have no wheel for it."""
    tags = _tags(machine, python)
    found = []
    for pin in pins:
        if not _applies(pin, machine, python):
            continue
        wheels = (names[digest] for digest in pin.hashes if digest in names)
        if not any(tags & parse_wheel_filename(wheel)[3] for wheel in wheels):
            found.append(f"{pin.name} {pin.version}")
    return found


def wheels_for(
    pin: Pin, names: Mapping[str, str], python: tuple[int, int] | None = None
) -> list[str]:
    """The SHA-256 digests of a pin's wheels that fit a Python on any of `MACHINES`, sorted.

    names: file names by digest, as `read_record` gives them. python: None means the one that runs.
    """
    version = python or (sys.version_info.major, sys.version_info.minor)
    tags = set[Tag]().union(*(_tags(machine, version) for machine in MACHINES))
    return sorted(
        digest
        for digest in pin.hashes & names.keys()
        if tags & parse_wheel_filename(names[digest])[3]
    )


def without_markers(pins: Sequence[Pin], machine: str, python: tuple[int, int]) -> list[Pin]:
    """The pins that apply to that Linux machine and Python."""
    return [pin for pin in pins if _applies(pin, machine, python)]


def _applies(pin: Pin, machine: str, python: tuple[int, int]) -> bool:
    marker = pin.requirement.marker
    version = ".".join(map(str, python))
    full = {"python_version": version, "python_full_version": f"{version}.0"}
    return marker is None or marker.evaluate({**_LINUX, **full, "platform_machine": machine})


def _tags(machine: str, python: tuple[int, int]) -> set[Tag]:
    newest = GLIBC[1]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    platforms += [f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"manylinux1_{machine}"]
    interpreter = f"cp{python[0]}{python[1]}"
    return {*cpython_tags(python, platforms=platforms)} | {
        *compatible_tags(python, interpreter, platforms)
    }


if __name__ == "__main__":
    print("\n".join(sorted(record(Path(sys.argv[1])), key=lambda line: line.split()[1])))
