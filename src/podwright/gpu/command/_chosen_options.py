"""The settings for a GPU cluster, as the options of `podwright slurm configure` name them."""

from __future__ import annotations

import shutil
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.command._cluster_options import GpuClusterOptions
from podwright.gpu.configure._gates import GateScript
from podwright.gpu.configure._sampling import Sampling
from podwright.gpu.configure._setup import ConfigureOptions
from podwright.gpu.configure._summaries import Summary
from podwright.slurm.site.ask import ask_slurm
from podwright.slurm.site.releases import Version, parse_version


def chosen_options(choice: GpuClusterOptions, folder: str) -> ConfigureOptions:
    """Return the settings. folder: for Podwright's own files. Raises InvalidRequest."""
    return ConfigureOptions(
        choice.autodetect,
        choice.topology,
        choice.confine,
        choice.imex,
        _program(choice.health_check),
        _gate(choice, folder),
        _sampling(choice, folder),
        _summary(choice, folder),
    )


def _program(name: str) -> str:
    if name and (not name.startswith("/") or any(letter in name for letter in " \t\n#=")):
        raise InvalidRequest(
            f"{name!r} is not a path that slurm.conf can have",
            operation="--health-check",
            would_work="give an absolute path without blanks, such as /usr/local/sbin/health",
        )
    return name


def _gate(choice: GpuClusterOptions, folder: str) -> GateScript | None:
    """Return the settings of our own health check, if it is wanted. Raises InvalidRequest."""
    if not choice.health:
        return None
    if choice.health_check:
        raise InvalidRequest(
            "both would be Slurm's HealthCheckProgram",
            operation="--health with --health-check",
            would_work="--health, and the other program as a script in node-health.toml",
        )
    script = Path(folder).absolute() / "node-health"
    return GateScript(_program(str(script)), _on_nodes(choice), choice.health)


def _sampling(choice: GpuClusterOptions, folder: str) -> Sampling | None:
    """Return the settings for samples of jobs' GPUs, if they are wanted. Raises InvalidRequest."""
    if not choice.efficiency:
        return None
    script = Path(folder).absolute() / "task-prolog"
    return Sampling(_program(str(script)), _on_nodes(choice), choice.efficiency)


def _summary(choice: GpuClusterOptions, folder: str) -> Summary | None:
    """Return the settings for summaries at jobs' ends, if they are wanted. Raises
    InvalidRequest.
    """
    if not choice.summary:
        return None
    script = _program(str(Path(folder).absolute() / "job-epilog"))
    summary_folder = _program(choice.summary_folder)
    return Summary(script, _on_nodes(choice), choice.summary, summary_folder)


def _on_nodes(choice: GpuClusterOptions) -> str:
    """Return the path of podwright on the nodes."""
    return _program(choice.node_podwright or shutil.which("podwright") or "/usr/bin/podwright")


def chosen_version(named: str | None) -> Version:
    """Return the named release of Slurm, or that of this machine. Raises InvalidRequest."""
    version = named or ask_slurm(["scontrol", "--version"])
    if not version:
        # On a node without files of its own, scontrol asks slurmctld for them before it prints
        # anything.
        scontrol = shutil.which("scontrol")
        raise InvalidRequest(
            "scontrol does not say Slurm's version; slurmctld may be down"
            if scontrol
            else "there is no scontrol on PATH to ask for Slurm's version",
            operation="--gpus",
            would_work="say it: --slurm-version=24.11",
        )
    return parse_version(version)
