"""Opens the libraries of the vendors that answer on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from podwright.hosts.gpus._library import (
    AMDSMI_STANDIN,
    NVML_STANDIN,
    STANDINS,
    Library,
    LibraryError,
)


def open_libraries(environ: Mapping[str, str], root: str = "/") -> tuple[list[Library], list[str]]:
    """Return the libraries that answer, and notes on those that are installed and do not answer.

    Where the environment names a stand-in, no real library is opened. Otherwise a machine with GPUs
    of its own would mix real devices with simulated ones.
    """
    from podwright.hosts.gpus._amd import open_amd
    from podwright.hosts.gpus._nvml import open_nvml

    opened: list[Library] = []
    notes: list[str] = []
    simulated = any(environ.get(name) for name in STANDINS)
    vendors = (("nvidia", NVML_STANDIN, open_nvml), ("amd", AMDSMI_STANDIN, open_amd))
    for vendor, stand_in, open_library in vendors:
        if simulated and not environ.get(stand_in):
            continue
        try:
            library = open_library(environ, root)
        except LibraryError as error:
            notes.append(f"{vendor}: {error}")
        else:
            opened += [library] if library else []
    return opened, notes
