"""What Slurm's commands print, asked once and without a loop: for commands that only look."""

from __future__ import annotations

from collections.abc import Callable

#: A command of Slurm's: what it printed; empty where there is no answer.
Ask = Callable[[list[str]], str]


def ask_slurm(words: list[str]) -> str:
    """The output of a Slurm command, empty where there is none or it does not answer."""
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def has_controller() -> bool:
    """Does anybody name a controller of Slurm to this machine, whether or not that answers?

    Without a slurm.conf and an address, commands look for one in DNS, and say that there is none
    (Slurm's fetch_config.c, 22.05 to 26.05). Whatever else they say, there may be one.
    """
    import subprocess

    words = ["scontrol", "ping"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
    return "DNS SRV lookup failed" not in done.stdout + done.stderr
