"""IPUoF configuration files, by which programs that read files find a partition.

The files belong to the caller, so the caller writes them, not the server. Folders and names are
V-IPU's: `~/.ipuof.conf.d/<partition>_ipuof.conf`, or `<partition>_gcd<N>_ipuof.conf` for each of
several GCDs, and `/etc/ipuof.conf.d` for all accounts. The attribute `Partition Id` is ours: a file
is removed only when this attribute names the partition.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from podwright.endpoints import system_path
from podwright.wire import PartitionInfo, ipuof_gcds

SYSTEM = Path(system_path("/etc/ipuof.conf.d"))
OWNER = "Partition Id"


def own_folder() -> Path:
    """Return the folder of the calling user's own files."""
    return Path.home() / ".ipuof.conf.d"


def write(info: PartitionInfo, *, system_wide: bool, report: Callable[[str], None]) -> None:
    """Write the files of an ACTIVE partition, in place of older ones with its name.

    The user's own files are private; files for all accounts can be read by all. report: gets a line
    for an error, which is not raised, because the partition exists all the same.
    """
    folder, mode = (SYSTEM, 0o644) if system_wide else (own_folder(), 0o600)
    try:
        if system_wide:
            folder.mkdir(mode=0o755, exist_ok=True)
        else:
            folder.mkdir(mode=0o700, exist_ok=True)
        _remove(folder, info.name)
        gcds = ipuof_gcds(info)
        for number, gcd in enumerate(gcds):
            gcd["attributes"][OWNER] = info.name
            middle = f"_gcd{number}" if len(gcds) > 1 else ""
            _replace(folder / f"{info.name}{middle}_ipuof.conf", gcd, mode)
    except OSError as error:
        report(_sentence(folder, info.name, "written", error))


def rewrite(info: PartitionInfo, report: Callable[[str], None]) -> None:
    """Write the files that exist anew, since the partition's devices may have moved."""
    for folder in (own_folder(), SYSTEM):
        if any(_files(folder, info.name)):
            write(info, system_wide=folder == SYSTEM, report=report)


def remove(name: str, report: Callable[[str], None]) -> None:
    """Remove the files of a partition from both folders."""
    for folder in (own_folder(), SYSTEM):
        try:
            _remove(folder, name)
        except OSError as error:
            report(_sentence(folder, name, "removed", error))


def _remove(folder: Path, name: str) -> None:
    for path in _files(folder, name):
        path.unlink(missing_ok=True)


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files of a folder whose attribute names this partition."""
    pattern = re.compile(re.escape(name) + r"(_gcd\d+)?_ipuof\.conf")
    try:
        files = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return
    for path in files:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if json.loads(path.read_text())["attributes"].get(OWNER) == name:
                yield path


def _replace(path: Path, content: dict[str, Any], mode: int) -> None:
    """Replace a file completely or not at all, since programs may be reading the folder."""
    handle, scratch = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            os.fchmod(file.fileno(), mode)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise


def _sentence(folder: Path, name: str, message: str, error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"The IPUoF files of {name} in {folder} were not {message}: {reason}."
