"""Opens the libraries of the vendors that answer on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from podwright.hosts.gpus._library import Library, LibraryError


def open_libraries(environ: Mapping[str, str], root: str = "/") -> tuple[list[Library], list[str]]:
    """Return the libraries that answer, and notes on those that are installed and do not answer."""
    from podwright.hosts.gpus._amd import open_amd
    from podwright.hosts.gpus._nvml import open_nvml

    opened: list[Library] = []
    notes: list[str] = []
    for vendor, open_library in (("nvidia", open_nvml), ("amd", open_amd)):
        try:
            library = open_library(environ, root)
        except LibraryError as error:
            notes.append(f"{vendor}: {error}")
        else:
            opened += [library] if library else []
    return opened, notes
