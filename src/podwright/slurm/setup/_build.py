"""Builds the two compiled pieces against this machine's own Slurm, into a folder."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from podwright.wire import Unavailable


def build(into: Path, *, include: str = "") -> list[Path]:
    """The files that were made. include: where another Slurm's headers lie.

    Raises Unavailable with the compiler's own words.
    """
    import subprocess

    try:
        into.mkdir(parents=True, exist_ok=True)
        with as_file(files("podwright.slurm").joinpath("native")) as source:
            argv = ["make", "-s", "-B", "-C", str(source), f"OUT={into.absolute()}"]
            argv += [f"SLURM_INCLUDE={include}"] if include else []
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(
            f"{error.filename}: {error.strerror}",
            asked="build the plugin and the hook",
            would_work="apt-get install gcc make libslurm-dev, and a folder that you may write to",
        ) from None
    if done.returncode:
        raise Unavailable(
            " ".join(done.stderr.split())[-400:],
            asked="build the plugin and the hook",
            would_work="apt-get install gcc make libslurm-dev",
        )
    return [into / "podwright-hook", into / "spank_podwright.so"]
