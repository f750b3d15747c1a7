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

#: Where a site's file stands.
PLACE = "/etc/podwright/node-health.toml"


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node must have; 0 and nothing: not said. memory, gpu_memory: bytes, which a file
    has in MiB. mbps: of one NVLink. gbps: of each rail. fabric_manager, imex: None finds out by
    itself whether it belongs."""

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
    """How one check runs; empty and None: as it comes. limit: its bound, in the unit that the
    table of checks names. ignore: parts that it does not look at."""

    level: Literal["", "off", "warn", "fail"] = ""
    limit: float | None = None
    ignore: tuple[str, ...] = ()


class SiteScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site's own check. It ends with 0: fine; 1: warn; 2: fail, with words about it in its first
    line. Whatever else it does is a fault of the script, which warns and never drains.
    timeout: seconds."""

    name: str
    command: tuple[str, ...]
    timeout: float = 5.0
    means: str = "A check of this site's own says so."
    do: str = "See what the script looks at."


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site's file. cap: per cent. allowed: programs that may hold a GPU outside of jobs."""

    act: Literal["warn", "drain"] = "warn"
    cap: float = 5.0
    inventory: str = ""
    expect: Expect = Expect()
    checks: dict[str, Check] = {}
    scripts: tuple[SiteScript, ...] = ()
    allowed: tuple[str, ...] = (
        *("nvidia-persiste", "nv-hostengine", "dcgm", "dcgm-exporter", "nvidia-smi"),
        *("nvidia-cuda-mps", "nv-fabricmanage", "Xorg", "gnome-shell", "amd-smi", "rocm-smi"),
    )

    def check(self, name: str) -> Check:
        """What is said of a check."""
        return self.checks.get(name, Check())


def read_settings(path: str, known: frozenset[str]) -> Settings:
    """The settings in a file; those of a site that says nothing, where the usual file is not.

    known: names of checks. Raises InvalidRequest.
    """
    try:
        text = Path(path or PLACE).read_text()
    except FileNotFoundError:
        if not path:
            return Settings()
        raise _bad(path, "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path or PLACE, getattr(error, "strerror", None) or "it is no text") from None
    try:
        tree: dict[str, Any] = tomllib.loads(text)
        found = _in_bytes(msgspec.convert(tree, Settings))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _bad(path or PLACE, str(error)) from None
    unknown = sorted(set(found.checks) - known)
    if unknown:
        raise _bad(path or PLACE, f"there is no check {unknown[0]}")
    if not 0 < found.cap <= 100:
        raise _bad(path or PLACE, f"cap is {found.cap:g}, and not a part of 100")
    for script in found.scripts:
        if not script.command or not 0 < script.timeout <= 30 or script.name in known:
            raise _bad(
                path or PLACE,
                f"script {script.name!r} needs a name of its own, a command, and a timeout of at "
                "most 30 seconds",
            )
    return found


def _in_bytes(said: Settings) -> Settings:
    replace, expect = msgspec.structs.replace, said.expect
    return replace(
        said,
        expect=replace(expect, memory=expect.memory << 20, gpu_memory=expect.gpu_memory << 20),
    )


def _bad(path: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path}: {why}",
        asked="read the settings of the health check",
        would_work="podwright node health --list prints what can be set",
    )
