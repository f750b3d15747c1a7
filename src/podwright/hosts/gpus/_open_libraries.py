"""Opens the libraries of the vendors that answer on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from podwright.hosts.gpus._vendor_library import (
    AMDSMI_STANDIN_VARIABLE,
    NVML_STANDIN_VARIABLE,
    STANDINS,
    Library,
    LibraryError,
)


def open_libraries(
    environ: Mapping[str, str], root_folder: str = "/"
) -> tuple[list[Library], list[str]]:
    """Return the libraries that answer, and notes on those that are installed and do not answer.

    Where the environment names a stand-in, no real library is opened. Otherwise a machine with GPUs
    of its own would mix real devices with simulated ones.
    """
    from podwright.hosts.gpus._amd import open_amd_library
    from podwright.hosts.gpus._nvml import open_nvml

    opened_libraries: list[Library] = []
    notes: list[str] = []
    any_standin = any(environ.get(name) for name in STANDINS)
    vendor_openers = (
        ("nvidia", NVML_STANDIN_VARIABLE, open_nvml),
        ("amd", AMDSMI_STANDIN_VARIABLE, open_amd_library),
    )
    for vendor, standin_variable, open_library in vendor_openers:
        if any_standin and not environ.get(standin_variable):
            continue
        try:
            vendor_library = open_library(environ, root_folder)
        except LibraryError as error:
            notes.append(f"{vendor}: {error}")
        else:
            opened_libraries += [vendor_library] if vendor_library else []
    return opened_libraries, notes
