"""IPUoF configuration files: how programs that read files find a partition.

They belong to the person who calls, so the command writes them, not the server. Folders and names
are V-IPU's: `~/.ipuof.conf.d/<partition>_ipuof.conf`, or `<partition>_gcd<N>_ipuof.conf` for each
of several GCDs, and `/etc/ipuof.conf.d` for all accounts. The attribute `Partition Id` is ours: a
file is only ever taken away when it says that it is this partition's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podwright.cli._arguments import complain
from podwright.wire import PartitionInfo, ipuof_gcds

SYSTEM = Path("/etc/ipuof.conf.d")
OWNER = "Partition Id"


def own_folder() -> Path:
    """The calling user's own files."""
    return Path.home() / ".ipuof.conf.d"


def write(info: PartitionInfo, *, system_wide: bool) -> None:
    """Write the files of a partition that is ACTIVE, in place of older ones of that name.

    One's own are private; those for all accounts can be read by all. What stands in the way is
    said and no more: the partition is there all the same.
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
        _tell(folder, info.name, "written", error)


def rewrite(info: PartitionInfo) -> None:
    """Write those files anew that there are: its devices may have moved."""
    for folder in (own_folder(), SYSTEM):
        if any(_files(folder, info.name)):
            write(info, system_wide=folder == SYSTEM)


def remove(name: str) -> None:
    """Take the files of a partition away, wherever they are."""
    for folder in (own_folder(), SYSTEM):
        try:
            _remove(folder, name)
        except OSError as error:
            _tell(folder, name, "removed", error)


def _remove(folder: Path, name: str) -> None:
    for path in _files(folder, name):
        path.unlink(missing_ok=True)


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Those files of a folder that say that they are this partition's."""
    pattern = re.compile(re.escape(name) + r"(_gcd\d+)?_ipuof\.conf")
    try:
        found = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return
    for path in found:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if json.loads(path.read_text())["attributes"].get(OWNER) == name:
                yield path


def _replace(path: Path, content: dict[str, Any], mode: int) -> None:
    """The whole file or none of it: programs may be reading the folder."""
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


def _tell(folder: Path, name: str, what: str, error: OSError) -> None:
    reason = (error.strerror or str(error)).lower()
    complain(f"The IPUoF files of {name} in {folder} were not {what}: {reason}.")
