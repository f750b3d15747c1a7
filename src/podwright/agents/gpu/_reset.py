"""Resets of a GPU by the vendor's command, since NVML has no call for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from podwright.errors import Internal
from podwright.hosts import find_program
from podwright.hosts.gpus import Gpu

_SECONDS = 60


def resetter(environ: Mapping[str, str]) -> Callable[[Gpu], None] | None:
    """Return a function that resets one GPU; None without root, or without such a command."""
    if os.geteuid() != 0:
        return None
    commands = {
        "nvidia": (find_program("nvidia-smi", environ), ["--gpu-reset", "-i"]),
        "amd": (find_program("amd-smi", environ), ["reset", "--gpureset", "--gpu"]),
    }
    known = {v: [program, *words] for v, (program, words) in commands.items() if program}
    if not known:
        return None

    def reset(gpu: Gpu) -> None:
        command = known.get(gpu.vendor)
        if command is not None:
            run([*command, gpu.uuid if gpu.vendor == "nvidia" else gpu.bus], environ)

    return reset


def run(command: list[str], environ: Mapping[str, str], seconds: float = _SECONDS) -> str:
    """Return the output of a vendor's command. Raises wire.Internal with its last words when it
    fails.
    """
    import subprocess

    name = os.path.basename(command[0])
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        raise Internal(f"{name} does not end within {seconds:g} s") from None
    except OSError as error:
        raise Internal(f"{name} cannot be run: {error.strerror}") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = lines[-1] if lines else f"exit code {done.returncode}"
        raise Internal(f"{name} {command[1]} failed: {last}")
    return done.stdout
