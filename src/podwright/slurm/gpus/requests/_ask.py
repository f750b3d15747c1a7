"""What a command of Slurm's on this machine says."""

from __future__ import annotations

from collections.abc import Callable

Ask = Callable[[list[str]], str]


def ask_slurm(words: list[str]) -> str:
    """The output of a Slurm command, empty where there is none or it does not answer."""
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
