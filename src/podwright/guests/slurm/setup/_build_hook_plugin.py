"""Builds the hook and the plugin, our two compiled parts, against this machine's own Slurm, into a
folder.
"""

from __future__ import annotations

import re
import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from podwright.errors import Unavailable

_INSTALL_PACKAGES_COMMAND: Final = "apt-get install gcc make libslurm-dev"
#: The messages of a compiler or of make where a package is missing: Slurm's headers, or a tool.
_MISSING_PACKAGE_ERROR: Final = re.compile(
    r"slurm/\w+\.h: No such file|(?:cc|gcc|make)\S*: (?:No such file|not found|command not found)"
)


def build(target_folder: Path, *, include: str = "") -> list[Path]:
    """Build both parts into the folder `target_folder`, and return the files.

    include: the folder with the headers of another Slurm; "" means those of the Slurm on PATH.
    Raises Unavailable with the compiler's own words.
    """
    import subprocess

    include = include or own_headers_folder(shutil.which("scontrol"))
    try:
        target_folder.mkdir(parents=True, exist_ok=True)
        with as_file(files("podwright.guests.slurm").joinpath("native")) as source_folder:
            make_command = [
                "make",
                "-s",
                "-B",
                "-C",
                str(source_folder),
                f"OUT={target_folder.absolute()}",
            ]
            make_command += [f"SLURM_INCLUDE={include}"] if include else []
            make_result = subprocess.run(make_command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            operation="build the plugin and the hook",
            would_work=f"{_INSTALL_PACKAGES_COMMAND}, and a folder that you may write to",
        ) from None
    if make_result.returncode:
        raise Unavailable(
            _first_compiler_errors(make_result.stderr),
            operation="build the plugin and the hook",
            would_work=_INSTALL_PACKAGES_COMMAND
            if _MISSING_PACKAGE_ERROR.search(make_result.stderr)
            else "report it with these words and what `scontrol --version` says: this Slurm's "
            "headers are not understood",
        )
    return [target_folder / "podwright-hook", target_folder / "spank_podwright.so"]


def own_headers_folder(scontrol: str | None) -> str:
    """Return where a Slurm in a folder of its own has its headers, such as `/opt/slurm/include`.

    Returns "" for a Slurm whose headers the compiler finds by itself. scontrol: that Slurm's
    command. Raises Unavailable where such a Slurm came without headers: with the headers of another
    release, slurmd does not load the plugin.
    """
    if scontrol is None:
        return ""
    install_prefix = Path(scontrol).resolve().parent.parent
    has_plugins = any(path.is_dir() for path in install_prefix.glob("lib*/slurm"))
    if install_prefix == Path("/usr") or not has_plugins:
        return ""
    if not (install_prefix / "include/slurm/spank.h").exists():
        raise Unavailable(
            f"{scontrol} belongs to a Slurm in {install_prefix}, which has no "
            "include/slurm/spank.h",
            operation="build the plugin and the hook",
            would_work="`make install` of that Slurm, or say where its headers are: --include DIR",
        )
    return str(install_prefix / "include")


def _first_compiler_errors(compiler_output: str) -> str:
    """Return the compiler's first errors, without the source lines that it shows around them."""
    error_lines = [
        line for line in compiler_output.splitlines() if re.search(r"\b(?:fatal )?error:", line)
    ]
    return " ".join(" ".join(error_lines[:3] or compiler_output.split())[:600].split())
