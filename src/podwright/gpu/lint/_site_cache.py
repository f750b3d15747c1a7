"""Caches what is known about the local Slurm, from the output of its own commands.

Plugins of a site (Pyxis, Shifter, its own) add options to sbatch, which `sbatch --help` lists. The
commands take longer than the lint itself, so their output is kept for an hour, for this sbatch
only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from podwright.gpu.lint._option_values import minutes
from podwright.gpu.lint._script_files import read_file
from podwright.ground.durable_files import user_folder, write_whole
from podwright.slurm.reader import (
    SHOW_CONFIG,
    SHOW_PARTITIONS,
    SlurmConfig,
    SlurmPartitionRecord,
    known,
    read_partitions,
)
from podwright.slurm.site.blocking_commands import ask_slurm
from podwright.slurm.site.releases import SlurmVersion, parse_version

CACHE_LIFETIME_S = 3600.0  # seconds
PARTIAL_CACHE_SECONDS = 60.0  # if a command did not answer
Ask = Callable[[list[str]], str]
_OPTION_PATTERN = re.compile(r"^\s+(?:-\w,\s+)?--([\w-]+)", re.M)
_CACHE_FORMAT = 1


class PartitionLimits(NamedTuple):
    """Limits of a partition: minutes (infinity for none) and nodes (None for none)."""

    minutes: float
    nodes: int | None


class CachedSite(NamedTuple):
    """The known facts about a site.

    They are the version, the TopologyPlugin, all long options of sbatch (plugins' too), partitions
    by name, the default one, and whether GPUs are GRES there. Empty or None: not known.
    """

    version: SlurmVersion | None = None
    topology: str = ""
    options: frozenset[str] = frozenset()
    partitions: Mapping[str, PartitionLimits] = {}
    default_partition: str = ""
    gpus: bool | None = None


def read_help(help_text: str) -> frozenset[str]:
    """Return the long options that an `sbatch --help` lists."""
    return frozenset(_OPTION_PATTERN.findall(help_text))


def read_site(config_output: str, partitions_output: str, help_text: str) -> CachedSite:
    """Return the site in these outputs: `scontrol show config`, `scontrol --oneliner show
    partition`, `sbatch --help`.

    Each may be empty. What Slurm does not show is not known, and no rule that needs it is applied.
    """
    slurm_config = SlurmConfig(config_output)
    partition_limits: dict[str, PartitionLimits] = {}
    default_partition = ""
    for partition in read_partitions(partitions_output):
        partition_limits[partition.name] = _partition_limits(partition)
        if _is_default(partition):
            default_partition = partition.name
    return CachedSite(
        known(lambda: slurm_config.version, None),
        known(lambda: _topology_plugin(slurm_config), ""),
        read_help(help_text),
        partition_limits,
        default_partition,
        known(lambda: "gpu" in slurm_config.names("GresTypes"), None),
    )


def _partition_limits(partition: SlurmPartitionRecord) -> PartitionLimits:
    return PartitionLimits(
        known(lambda: _partition_minutes(partition), float("inf")),
        known(lambda: None if partition.has_own_qos else partition.max_nodes, None),
    )


def _is_default(partition: SlurmPartitionRecord) -> bool:
    return known(lambda: partition.default, False)


def _partition_minutes(partition: SlurmPartitionRecord) -> float:
    """Return a partition's time limit; none if it has a QOS, which may lift the limit."""
    limit_minutes = None if partition.has_own_qos else minutes(partition.max_time)
    return float("inf") if limit_minutes is None else limit_minutes


def _topology_plugin(config: SlurmConfig) -> str:
    """Return the TopologyPlugin by its last word."""
    return config.value("TopologyPlugin").rpartition("/")[2]


def find_site(run_slurm: Ask, cache_file: str, now: float) -> CachedSite:
    """Return the site of this machine, read at most once an hour. Without Slurm, its values are not
    known.
    """
    import os

    sbatch_path = _program_path("sbatch")
    if not sbatch_path:
        return CachedSite()
    sbatch_stat = os.stat(sbatch_path)
    cache_key = [
        _CACHE_FORMAT,
        sbatch_path,
        sbatch_stat.st_mtime_ns,
        sbatch_stat.st_size,
        os.environ.get("SLURM_CONF", ""),
    ]
    outputs = _load_cache(cache_file, cache_key, now)
    if outputs is None:
        outputs = {
            "config": run_slurm(list(SHOW_CONFIG)),
            "partitions": run_slurm(list(SHOW_PARTITIONS)),
            "help": run_slurm(["sbatch", "--help"]),
        }
        _save_cache(cache_file, {"key": cache_key, "at": now, **outputs})
    return read_site(outputs["config"], outputs["partitions"], outputs["help"])


def _program_path(command: str) -> str:
    """Return the path of a program as shutil.which does; empty if there is none.

    The module of shutil.which costs 4 ms.
    """
    import os

    candidate_paths = (os.path.join(folder, command) for folder in os.get_exec_path())
    return next((path for path in candidate_paths if os.access(path, os.X_OK)), "")


def _load_cache(cache_file: str, cache_key: list[Any], now: float) -> dict[str, str] | None:
    import json

    try:
        with open(cache_file, encoding="utf-8") as file:
            cached = json.load(file)
        outputs = {name: str(cached[name]) for name in ("config", "partitions", "help")}
        age_seconds = now - cached["at"]
        is_fresh = cached["key"] == cache_key and 0 <= age_seconds < (
            CACHE_LIFETIME_S if all(outputs.values()) else PARTIAL_CACHE_SECONDS
        )
        return outputs if is_fresh else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save_cache(cache_file: str, content: dict[str, Any]) -> None:
    """Save the site if that is possible; otherwise the next run asks again."""
    import json
    import os
    from contextlib import suppress

    with suppress(OSError):
        os.makedirs(os.path.dirname(cache_file), mode=0o700, exist_ok=True)
        write_whole(cache_file, json.dumps(content))


def cache_path() -> str:
    """Return the path of the file in which the site's answers are kept."""
    import os

    return os.path.join(user_folder("cache"), "podwright", "slurm-site.json")


def chosen_site(
    slurm_version: str | None, topology: str | None, sbatch_help: str | None
) -> CachedSite:
    """Return the site according to the options, and otherwise according to its Slurm.

    sbatch_help: a file with the output of `sbatch --help` there.
    """
    has_options = slurm_version or topology or sbatch_help
    site = CachedSite() if has_options else find_site(ask_slurm, cache_path(), time.time())
    if slurm_version:
        site = site._replace(version=parse_version(slurm_version))
    if topology:
        site = site._replace(topology=topology)
    if sbatch_help:
        site = site._replace(options=read_help(read_file(sbatch_help)))
    return site
