"""The settings for a GPU cluster, as the options of `podwright slurm configure` name them."""

from __future__ import annotations

import shutil
from pathlib import Path

from podwright.errors import InvalidRequest
from podwright.gpu.command._gpu_configure_options import GpuClusterOptions
from podwright.gpu.configure._health_gate_script import GateScript
from podwright.gpu.configure._plan_configuration import ConfigureOptions
from podwright.gpu.configure._sampling_script import Sampling
from podwright.slurm.site.blocking_commands import ask_slurm
from podwright.slurm.site.releases import SlurmVersion, parse_version
from podwright.slurm.twin import find_slurm


def chosen_options(cluster_options: GpuClusterOptions, own_folder: str) -> ConfigureOptions:
    """Return the settings. own_folder: for Podwright's own files. Raises InvalidRequest."""
    return ConfigureOptions(
        cluster_options.autodetect,
        cluster_options.topology,
        cluster_options.confine,
        cluster_options.imex,
        _check_program_path(cluster_options.health_check),
        _chosen_health_gate(cluster_options, own_folder),
        _sampling(cluster_options, own_folder),
    )


def _check_program_path(program_path: str) -> str:
    if program_path and (
        not program_path.startswith("/") or any(letter in program_path for letter in " \t\n#=")
    ):
        raise InvalidRequest(
            f"{program_path!r} is not a path that slurm.conf can have",
            operation="--health-check",
            would_work="give an absolute path without blanks, such as /usr/local/sbin/health",
        )
    return program_path


def _chosen_health_gate(cluster_options: GpuClusterOptions, own_folder: str) -> GateScript | None:
    """Return the settings of our own checks, if any is wanted. Raises InvalidRequest."""
    if not cluster_options.health and not cluster_options.clean:
        return None
    if cluster_options.health_check:
        raise InvalidRequest(
            "both would be Slurm's HealthCheckProgram",
            operation="--health or --clean with --health-check",
            would_work="--health or --clean, and the other program as a script in node-health.toml",
        )
    script_path = Path(own_folder).absolute() / "node-health"
    return GateScript(
        _check_program_path(str(script_path)),
        _node_podwright_path(cluster_options),
        cluster_options.health or "",
        cluster_options.clean or "",
    )


def _sampling(cluster_options: GpuClusterOptions, own_folder: str) -> Sampling | None:
    """Return the settings for samples of jobs' GPUs, if they are wanted. Raises InvalidRequest."""
    if not cluster_options.efficiency:
        return None
    script_path = Path(own_folder).absolute() / "task-prolog"
    return Sampling(
        _check_program_path(str(script_path)),
        _node_podwright_path(cluster_options),
        cluster_options.efficiency,
    )


def _node_podwright_path(cluster_options: GpuClusterOptions) -> str:
    """Return the path of podwright on the nodes."""
    return _check_program_path(
        cluster_options.node_podwright or shutil.which("podwright") or "/usr/bin/podwright"
    )


def chosen_version(named_version: str | None, slurm_path: str = "") -> SlurmVersion:
    """Return the named release of Slurm, or that of this machine. slurm_path: where its slurmctld
    is, if it is not where packages put it. Raises InvalidRequest."""
    version_text = named_version or ask_slurm(["scontrol", "--version"])
    if not version_text and (installed := find_slurm(path=slurm_path)):
        return installed.version
    if not version_text:
        # On a node without files of its own, scontrol asks slurmctld for them before it prints
        # anything.
        scontrol_path = shutil.which("scontrol")
        raise InvalidRequest(
            "scontrol does not say Slurm's version; slurmctld may be down"
            if scontrol_path
            else "there is no scontrol on PATH to ask for Slurm's version",
            operation="--gpus",
            would_work="say it: --slurm-version=24.11",
        )
    return parse_version(version_text)
