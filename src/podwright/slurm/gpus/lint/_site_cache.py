"""What is known of the Slurm that a script is for, out of what its own commands say, and kept.

Plugins of a site (Pyxis, Shifter, its own) add options to sbatch, which `sbatch --help` lists.
Asking costs more than linting, so the answers are kept for an hour, for this sbatch alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from podwright.slurm.gpus.lint._option_values import minutes
from podwright.slurm.gpus.requests import is_number
from podwright.slurm.site.releases import Version, parse_version

KEPT = 3600.0  # seconds
KEPT_PART = 60.0  # where a command did not answer
Ask = Callable[[list[str]], str]
_OPTION = re.compile(r"^\s+(?:-\w,\s+)?--([\w-]+)", re.M)
_FORM = 1


class PartitionLimits(NamedTuple):
    """Limits of a partition: minutes (infinity for none) and nodes (None for none)."""

    minutes: float
    nodes: int | None


class CachedSite(NamedTuple):
    """The version, the TopologyPlugin, all long options of sbatch (plugins' too), partitions by
    name, the default one, and whether GPUs are GRES there. Empty or None is what is not known."""

    version: Version | None = None
    topology: str = ""
    options: frozenset[str] = frozenset()
    partitions: Mapping[str, PartitionLimits] = {}
    default_partition: str = ""
    gpus: bool | None = None


def read_help(text: str) -> frozenset[str]:
    """The long options that an `sbatch --help` lists."""
    return frozenset(_OPTION.findall(text))


def read_site(config: str, partitions: str, help_text: str) -> CachedSite:
    """The site of these outputs: `scontrol show config`, `scontrol --oneliner show partition`,
    `sbatch --help`. Each may be empty."""
    version = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", config, re.M)
    topology = re.search(r"^TopologyPlugin\s*=\s*topology/(\w+)", config, re.M)
    kinds = re.search(r"^GresTypes\s*=\s*(\S+)", config, re.M)
    found: dict[str, PartitionLimits] = {}
    default = ""
    for row in partitions.splitlines():
        fields = dict(word.split("=", 1) for word in row.split() if "=" in word)
        name = fields.get("PartitionName")
        if not name:
            continue
        most = fields.get("MaxNodes", "UNLIMITED")
        free = fields.get("QoS", "N/A") != "N/A"  # a QOS of its own may lift the limits
        time = minutes(fields.get("MaxTime", "UNLIMITED"))
        found[name] = PartitionLimits(
            float("inf") if free or time is None else time,
            int(most) if is_number(most) and not free else None,
        )
        default = name if fields.get("Default") == "YES" else default
    return CachedSite(
        parse_version(version[1]) if version else None,
        topology[1] if topology else "",
        read_help(help_text),
        found,
        default,
        "gpu" in kinds[1].split(",") if kinds else None,
    )


def find_site(ask: Ask, cache: str, now: float) -> CachedSite:
    """This machine's site, asked for at most once an hour; unknown where there is no Slurm."""
    import os

    sbatch = _path_of("sbatch")
    if not sbatch:
        return CachedSite()
    state = os.stat(sbatch)
    key = [_FORM, sbatch, state.st_mtime_ns, state.st_size, os.environ.get("SLURM_CONF", "")]
    kept = _load(cache, key, now)
    if kept is None:
        kept = {
            "config": ask(["scontrol", "show", "config"]),
            "partitions": ask(["scontrol", "--oneliner", "show", "partition"]),
            "help": ask(["sbatch", "--help"]),
        }
        _save(cache, {"key": key, "at": now, **kept})
    return read_site(kept["config"], kept["partitions"], kept["help"])


def _path_of(command: str) -> str:
    """As shutil.which, whose module costs 4 ms; empty where there is none."""
    import os

    paths = (os.path.join(folder, command) for folder in os.get_exec_path())
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def _load(cache: str, key: list[Any], now: float) -> dict[str, str] | None:
    import json

    try:
        with open(cache, encoding="utf-8") as file:
            kept = json.load(file)
        said = {name: str(kept[name]) for name in ("config", "partitions", "help")}
        age = now - kept["at"]
        fresh = kept["key"] == key and 0 <= age < (KEPT if all(said.values()) else KEPT_PART)
        return said if fresh else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(cache: str, kept: dict[str, Any]) -> None:
    """Keep it where that can be done; elsewhere the next run asks again."""
    import json
    import os
    from contextlib import suppress

    new = f"{cache}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(cache), mode=0o700, exist_ok=True)
        with open(new, "w", encoding="utf-8") as file:
            json.dump(kept, file)
        os.replace(new, cache)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
