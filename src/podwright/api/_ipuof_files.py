"""IPUoF configuration files, by which programs that read files find a partition.

The files belong to the caller, so the caller writes them, not the server. Folders and names are
V-IPU's: `~/.ipuof.conf.d/<partition>_ipuof.conf`, or `<partition>_gcd<N>_ipuof.conf` for each of
several GCDs, and `/etc/ipuof.conf.d` for all accounts. The attribute `Partition Id` is ours: a file
is removed only when this attribute names the partition.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from podwright.ground.durable_files import write_whole
from podwright.ground.endpoints import system_path
from podwright.wire import PartitionInfo, ipuof_gcds

SYSTEM = Path(system_path("/etc/ipuof.conf.d"))
OWNER = "Partition Id"


def own_folder() -> Path:
    """Return the folder of the calling user's own files."""
    return Path.home() / ".ipuof.conf.d"


def write(
    partition_info: PartitionInfo, *, system_wide: bool, report: Callable[[str], None]
) -> None:
    """Write the files of an ACTIVE partition, in place of older ones with its name.

    The user's own files are private; files for all accounts can be read by all. report: gets a line
    for an error, which is not raised, because the partition exists all the same.
    """
    folder, file_mode = (SYSTEM, 0o644) if system_wide else (own_folder(), 0o600)
    try:
        if system_wide:
            folder.mkdir(mode=0o755, exist_ok=True)
        else:
            folder.mkdir(mode=0o700, exist_ok=True)
        _remove_files(folder, partition_info.name)
        gcds = ipuof_gcds(partition_info)
        for index, config in enumerate(gcds):
            config["attributes"][OWNER] = partition_info.name
            gcd_suffix = f"_gcd{index}" if len(gcds) > 1 else ""
            path = folder / f"{partition_info.name}{gcd_suffix}_ipuof.conf"
            write_whole(path, json.dumps(config, indent=2) + "\n", file_mode)
    except OSError as error:
        report(_failure_sentence(folder, partition_info.name, "written", error))


def rewrite_existing_files(partition_info: PartitionInfo, report: Callable[[str], None]) -> None:
    """Write the files that exist anew, since the partition's devices may have moved."""
    for folder in (own_folder(), SYSTEM):
        if any(_partition_files(folder, partition_info.name)):
            write(partition_info, system_wide=folder == SYSTEM, report=report)


def remove(partition_name: str, report_error: Callable[[str], None]) -> None:
    """Remove the files of a partition from both folders."""
    for folder in (own_folder(), SYSTEM):
        try:
            _remove_files(folder, partition_name)
        except OSError as error:
            report_error(_failure_sentence(folder, partition_name, "removed", error))


def _remove_files(folder: Path, partition_name: str) -> None:
    for path in _partition_files(folder, partition_name):
        path.unlink(missing_ok=True)


def _partition_files(folder: Path, partition_name: str) -> Iterator[Path]:
    """Yield the files of a folder whose attribute names this partition."""
    pattern = re.compile(re.escape(partition_name) + r"(_gcd\d+)?_ipuof\.conf")
    try:
        matching_paths = sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name))
    except OSError:
        return
    for path in matching_paths:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if json.loads(path.read_text())["attributes"].get(OWNER) == partition_name:
                yield path


def _failure_sentence(folder: Path, partition_name: str, failed_action: str, error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"The IPUoF files of {partition_name} in {folder} were not {failed_action}: {reason}."
