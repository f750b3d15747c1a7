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

from podwright.errors import InvalidRequest
from podwright.ground.endpoints import system_path

#: The usual path of a site's settings.
PLACE = system_path("/etc/podwright/node-health.toml")


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one check; empty and None keep its defaults.

    level: `warn`: what it finds keeps no job away. limit: its bound, in the unit of the table of
    checks. ignore: parts that it skips.
    """

    level: Literal["", "off", "warn"] = ""
    limit: float | None = None
    ignore: tuple[str, ...] = ()


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a site. cap: per cent of a partition's nodes. inventory: a file, or empty."""

    act: Literal["warn", "drain"] = "warn"
    cap: float = 5.0
    inventory: str = ""
    checks: dict[str, Check] = {}

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
        settings = msgspec.convert(toml_tree, Settings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _bad_settings(settings_path or PLACE, str(error)) from None
    unknown_checks = sorted(set(settings.checks) - check_names)
    if unknown_checks:
        raise _bad_settings(settings_path or PLACE, f"there is no check {unknown_checks[0]}")
    if not 0 < settings.cap <= 100:
        raise _bad_settings(
            settings_path or PLACE, f"cap is {settings.cap:g}, and not a part of 100"
        )
    return settings


def _bad_settings(settings_path: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"{settings_path}: {problem}",
        operation="read the settings of the health check",
        would_work="podwright node health --list prints what can be set",
    )
