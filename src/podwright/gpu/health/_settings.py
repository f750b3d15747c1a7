"""What a site says of its checks: which run, how much each weighs, its bounds, scripts of its own.

act = "drain"                      # warn: say it, change nothing in Slurm
cap = 5                            # per cent of a partition's nodes, at least one
inventory = "/etc/podwright/inventory.json"   # what `podwright inventory --json` printed

[expect]                           # what must be there, beside the inventory
gpus = 8
driver = "570.124.06"
mounts = ["/home", "/scratch"]

[checks.temperature]
level = "warn"                     # off, warn, fail
limit = 85

[[scripts]]
name = "scratch-quota"
command = ["/usr/local/sbin/check-quota"]
timeout = 5
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from podwright.endpoints import system_path
from podwright.errors import InvalidRequest

#: The usual path of a site's settings.
PLACE = system_path("/etc/podwright/node-health.toml")


class ExpectedNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node must have; 0 and empty: not given.

    memory, gpu_memory: bytes; MiB in the file. mbps: of one NVLink. gbps: of each rail.
    fabric_manager, imex: whether the service must run; None: this is detected.
    """

    gpus: int = 0
    gpu_memory: int = 0
    driver: str = ""
    firmware: str = ""
    nvlinks: int = 0
    mbps: int = 0
    adapters: int = 0
    gbps: int = 0
    memory: int = 0
    mounts: tuple[str, ...] = ()
    disks: tuple[str, ...] = ("/", "/tmp", "/var")
    fabric_manager: bool | None = None
    imex: bool | None = None


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one check; empty and None keep its defaults.

    limit: its bound, in the unit of the table of checks. ignore: parts that it skips.
    """

    level: Literal["", "off", "warn", "fail"] = ""
    limit: float | None = None
    ignore: tuple[str, ...] = ()


class SiteScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site's own check. Exit code 0: fine; 1: warn; 2: fail. The first line of output explains
    it.

    Any other ending is a fault of the script, which warns and never drains. timeout: seconds.
    """

    name: str
    command: tuple[str, ...]
    timeout: float = 5.0
    means: str = "A check of this site's own says so."
    do: str = "See what the script looks at."


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a site. cap: per cent of a partition's nodes.

    allowed: programs that may use a GPU outside of jobs.
    """

    act: Literal["warn", "drain"] = "warn"
    cap: float = 5.0
    inventory: str = ""
    expect: ExpectedNode = ExpectedNode()
    checks: dict[str, Check] = {}
    scripts: tuple[SiteScript, ...] = ()
    allowed: tuple[str, ...] = (
        *("nvidia-persiste", "nv-hostengine", "dcgm", "dcgm-exporter", "nvidia-smi"),
        *("nvidia-cuda-mps", "nv-fabricmanage", "Xorg", "gnome-shell", "amd-smi", "rocm-smi"),
    )

    def check(self, name: str) -> Check:
        """Return the settings of a check."""
        return self.checks.get(name, Check())


def read_settings(settings_path: str, check_names: frozenset[str]) -> Settings:
    """Read the settings from a file. A missing file at the usual place means the defaults.

    check_names: names of checks. Raises InvalidRequest.
    """
    try:
        toml_text = Path(settings_path or PLACE).read_text()
    except FileNotFoundError:
        if not settings_path:
            return Settings()
        raise _bad_settings(settings_path, "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_settings(
            settings_path or PLACE, getattr(error, "strerror", None) or "it is not text"
        ) from None
    try:
        toml_tree: dict[str, Any] = tomllib.loads(toml_text)
        settings = _memory_in_bytes(msgspec.convert(toml_tree, Settings))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _bad_settings(settings_path or PLACE, str(error)) from None
    unknown_checks = sorted(set(settings.checks) - check_names)
    if unknown_checks:
        raise _bad_settings(settings_path or PLACE, f"there is no check {unknown_checks[0]}")
    if not 0 < settings.cap <= 100:
        raise _bad_settings(
            settings_path or PLACE, f"cap is {settings.cap:g}, and not a part of 100"
        )
    for site_script in settings.scripts:
        if (
            not site_script.command
            or not 0 < site_script.timeout <= 30
            or site_script.name in check_names
        ):
            raise _bad_settings(
                settings_path or PLACE,
                f"script {site_script.name!r} needs a name of its own, a command, and a timeout of "
                "at most 30 seconds",
            )
    return settings


def _memory_in_bytes(settings: Settings) -> Settings:
    replace, expected_node = msgspec.structs.replace, settings.expect
    return replace(
        settings,
        expect=replace(
            expected_node,
            memory=expected_node.memory << 20,
            gpu_memory=expected_node.gpu_memory << 20,
        ),
    )


def _bad_settings(settings_path: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{settings_path}: {problem}",
        operation="read the settings of the health check",
        would_work="podwright node health --list prints what can be set",
    )
