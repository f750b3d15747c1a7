"""Runs one of Slurm's commands without an event loop, for commands that only read."""

from __future__ import annotations

from collections.abc import Callable

#: Runs one of Slurm's commands, and returns what it printed; empty where there is no answer.
Ask = Callable[[list[str]], str]


def ask_slurm(argv: list[str]) -> str:
    """Return the output of a Slurm command, or "" where there is no such command or it fails."""
    import subprocess

    try:
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stdout if completed.returncode == 0 else ""


def has_controller() -> bool:
    """Return whether this machine may have a Slurm controller, even one that does not answer.

    Without a slurm.conf and an address, Slurm's commands look for a controller in DNS, and report
    that there is none (Slurm's fetch_config.c, 22.05 to 26.05). With any other output there may be
    one.
    """
    import subprocess

    argv = ["scontrol", "ping"]
    try:
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
    return "DNS SRV lookup failed" not in completed.stdout + completed.stderr
