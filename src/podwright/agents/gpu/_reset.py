"""Resets of a GPU by the vendor's command, since NVML has no call for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from podwright.errors import Internal
from podwright.hosts import find_program
from podwright.hosts.gpus import Gpu

_COMMAND_TIMEOUT_S = 60


def gpu_resetter(environ: Mapping[str, str]) -> Callable[[Gpu], None] | None:
    """Return a function that resets one GPU; None without root, or without such a command."""
    if os.geteuid() != 0:
        return None
    vendor_commands = {
        "nvidia": (find_program("nvidia-smi", environ), ["--gpu-reset", "-i"]),
        "amd": (find_program("amd-smi", environ), ["reset", "--gpureset", "--gpu"]),
    }
    found_commands = {
        vendor: [program, *arguments]
        for vendor, (program, arguments) in vendor_commands.items()
        if program
    }
    if not found_commands:
        return None

    def reset(gpu: Gpu) -> None:
        command = found_commands.get(gpu.vendor)
        if command is not None:
            run([*command, gpu.uuid if gpu.vendor == "nvidia" else gpu.bus], environ)

    return reset


def run(command: list[str], environ: Mapping[str, str], seconds: float = _COMMAND_TIMEOUT_S) -> str:
    """Return the output of a vendor's command. Raises wire.Internal with its last words when it
    fails.
    """
    import subprocess

    program_name = os.path.basename(command[0])
    try:
        completed_process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=dict(environ),
        )
    except subprocess.TimeoutExpired:
        raise Internal(f"{program_name} does not end within {seconds:g} s") from None
    except OSError as error:
        raise Internal(f"{program_name} cannot be run: {error.strerror}") from None
    if completed_process.returncode:
        error_lines = (
            completed_process.stderr.strip() or completed_process.stdout.strip()
        ).splitlines()
        last_line = error_lines[-1] if error_lines else f"exit code {completed_process.returncode}"
        raise Internal(f"{program_name} {command[1]} failed: {last_line}")
    return completed_process.stdout
