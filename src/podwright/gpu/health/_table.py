"""The table of checks, and the run of all of them: observes the node and returns a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from podwright import plugins
from podwright.errors import InvalidRequest
from podwright.gpu.health import _gpu_checks as gpu
from podwright.gpu.health import _host_checks as host
from podwright.gpu.health._findings import HealthFinding, NodeReport
from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._node_observation import PATIENCE, Seen, observe
from podwright.gpu.health._settings import Settings
from podwright.hosts.gpus import BadInventory, Inventory, read_inventories


class Check(NamedTuple):
    """One row. level: of its findings, unless they have their own. limit: its bound; 0: none.

    unit: of the bound.
    """

    find: Callable[[CheckContext], Iterable[Wrong]]
    level: str
    limit: float = 0.0
    unit: str = ""

    @property
    def about(self) -> str:
        """What the check requires, in a sentence."""
        return (self.find.__doc__ or "").partition("\n")[0]


CHECKS: dict[str, Check] = {
    "library": Check(gpu.libraries, "fail", PATIENCE, "seconds to answer"),
    "gpus": Check(gpu.gpus, "fail"),
    "gpu-memory": Check(gpu.gpu_memory, "fail", 2, "per cent missing"),
    "driver": Check(gpu.driver, "fail"),
    "firmware": Check(gpu.firmware, "warn"),
    "xid": Check(gpu.xids, "fail"),
    "switches": Check(gpu.switches, "fail"),
    "ecc": Check(gpu.ecc, "fail", 0, "errors"),
    "row-remap": Check(gpu.row_remap, "fail"),
    "recovery": Check(gpu.recovery, "fail"),
    "nvlink": Check(gpu.nvlink, "fail"),
    "pcie": Check(gpu.pcie, "warn"),
    "temperature": Check(gpu.temperature, "warn", 87, "degrees Celsius"),
    "clocks": Check(gpu.clocks, "warn"),
    "persistence": Check(gpu.persistence, "warn"),
    "fabric": Check(gpu.fabric, "fail"),
    "adapters": Check(gpu.adapters, "fail"),
    "processes": Check(gpu.processes, "warn"),
    "memory": Check(host.memory, "fail", 5, "per cent missing"),
    "disks": Check(host.disks, "fail", 3, "per cent free"),
    "mounts": Check(host.mounts, "fail", 2, "seconds to answer"),
    "clock": Check(host.clock, "warn", 1, "seconds off"),
    "scripts": Check(host.scripts, "fail"),
}


def all_checks() -> dict[str, Check]:
    """Our own checks and those that other packages add. Raises Unavailable for a broken one."""
    return CHECKS | plugins.load_all(plugins.HEALTH_CHECKS, Check)


def judge(
    seen: Seen, settings: Settings, peers: Iterable[Inventory] = (), skip: Iterable[str] = ()
) -> list[HealthFinding]:
    """Return the findings, the most serious first.

    peers: inventories of nodes, including this one as it should be. skip: checks that do not run
    now.
    """
    everyone = tuple(peers)
    like = next(
        (inventory for inventory in everyone if inventory.host == seen.inventory.host), None
    )
    kind = _kind(like or seen.inventory)
    same = tuple(inventory for inventory in everyone if _kind(inventory) == kind and kind)
    left = set(skip)
    findings = []
    for name, check in all_checks().items():
        options = settings.check(name)
        if options.level == "off" or name in left:
            continue
        limit = check.limit if options.limit is None else options.limit
        for wrong in check.find(CheckContext(seen, settings, like, same, limit)):
            if wrong.part in options.ignore:
                continue
            level = wrong.level or check.level
            if options.level and level != "note":
                level = options.level if not wrong.level else min(options.level, level, key=_weight)
            findings.append(HealthFinding(name, level, wrong.part, *wrong[1:4]))
    return sorted(findings, key=lambda finding: -_weight(finding.level))


def _weight(level: str) -> int:
    return ("note", "warn", "fail").index(level)


def _kind(inventory: Inventory) -> tuple[str, ...]:
    return tuple(sorted({gpu.type for gpu in inventory.gpus}))


def run(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    root: str = "/",
    since: float = 0.0,
    skip: Iterable[str] = (),
) -> NodeReport:
    """Observe this node and judge it. since: see `observe`. Raises InvalidRequest."""
    start = time.monotonic()
    known_inventories = inventories(settings.inventory)
    seen = observe(settings, environ, root, since)
    left = set(skip)
    findings = judge(seen, settings, known_inventories, left)
    ran = tuple(n for n in all_checks() if settings.check(n).level != "off" and n not in left)
    return NodeReport(
        seen.inventory.host,
        ran,
        tuple(findings),
        round(time.monotonic() - start, 3),
        seen.inventory.simulated,
    )


def inventories(path: str) -> list[Inventory]:
    """The inventories in a file; empty where no file is named. Raises InvalidRequest."""
    if not path:
        return []
    try:
        return read_inventories(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError, BadInventory) as error:
        raise InvalidRequest(
            f"{path}: {getattr(error, 'strerror', None) or error}",
            operation="read what the node should have",
            would_work="podwright inventory --json, on nodes that are well, prints it, a line each",
        ) from None
