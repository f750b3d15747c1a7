"""Compiles the library that job_submit.lua uses to ask the service: one C file that needs only the
C library."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from podwright.errors import Unavailable

LIBRARY = "podwright_ask.so"
_COMPILER_FLAGS = [
    "-std=gnu11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-fstack-protector-strong",
    "-fPIC",
    "-shared",
]


def build(folder: Path) -> Path:
    """Compile the library into this folder and return its path. Raises Unavailable with the
    compiler's own message."""
    import subprocess

    library = folder / LIBRARY
    new_library = folder / f".{LIBRARY}.new"  # slurmctld may have the old one open
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with as_file(files(__package__).joinpath("ask.c")) as source_path:
            compiler_command = ["cc", *_COMPILER_FLAGS, "-o", str(new_library), str(source_path)]
            compilation = subprocess.run(
                compiler_command, capture_output=True, text=True, check=False
            )
        if compilation.returncode == 0:
            new_library.replace(library)
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            operation=f"build {LIBRARY}",
            would_work="install a C compiler (gcc), and name a folder that you may write to",
        ) from None
    if compilation.returncode:
        compiler_output = " ".join(compilation.stderr.split())[:600]
        raise Unavailable(
            compiler_output, operation=f"build {LIBRARY}", would_work="install gcc and libc6-dev"
        )
    return library
