"""The table of checks, and running it: a look at the node in, a report out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from podwright import plugins
from podwright.errors import InvalidRequest
from podwright.hosts.gpus import BadInventory, Inventory, read_inventories
from podwright.slurm.gpus.health import _gpu_checks as gpu
from podwright.slurm.gpus.health import _host_checks as host
from podwright.slurm.gpus.health._findings import HealthFinding, NodeReport
from podwright.slurm.gpus.health._gpu_checks import CheckContext, Wrong
from podwright.slurm.gpus.health._seen import PATIENCE, Seen, look
from podwright.slurm.gpus.health._settings import Settings


class Check(NamedTuple):
    """One row. level: of its findings, where they do not say another. limit: its bound; 0: none.
    unit: of the bound."""

    find: Callable[[CheckContext], Iterable[Wrong]]
    level: str
    limit: float = 0.0
    unit: str = ""

    @property
    def about(self) -> str:
        """What it asks for, in a sentence."""
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
    """Ours, and those that other packages add. Raises Unavailable for a broken one."""
    return CHECKS | plugins.load_all(plugins.HEALTH_CHECKS, Check)


def judge(
    seen: Seen, settings: Settings, others: Iterable[Inventory] = (), skip: Iterable[str] = ()
) -> list[HealthFinding]:
    """The findings, the heaviest first. others: inventories of nodes, of this one as it should be
    as well. skip: checks that do not run now."""
    everyone = tuple(others)
    like = next((one for one in everyone if one.host == seen.inventory.host), None)
    kind = _kind(like or seen.inventory)
    same = tuple(one for one in everyone if _kind(one) == kind and kind)
    left = set(skip)
    found = []
    for name, check in all_checks().items():
        said = settings.check(name)
        if said.level == "off" or name in left:
            continue
        limit = check.limit if said.limit is None else said.limit
        for wrong in check.find(CheckContext(seen, settings, like, same, limit)):
            if wrong.part in said.ignore:
                continue
            level = wrong.level or check.level
            if said.level and level != "note":
                level = said.level if not wrong.level else min(said.level, level, key=_weight)
            found.append(HealthFinding(name, level, wrong.part, *wrong[1:4]))
    return sorted(found, key=lambda finding: -_weight(finding.level))


def _weight(level: str) -> int:
    return ("note", "warn", "fail").index(level)


def _kind(inventory: Inventory) -> tuple[str, ...]:
    return tuple(sorted({one.type for one in inventory.gpus}))


def run(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    root: str = "/",
    since: float = 0.0,
    skip: Iterable[str] = (),
) -> NodeReport:
    """Look at this node and judge it. since: see `look`. Raises InvalidRequest."""
    start = time.monotonic()
    others = inventories(settings.inventory)
    seen = look(settings, environ, root, since)
    left = set(skip)
    findings = judge(seen, settings, others, left)
    ran = tuple(n for n in all_checks() if settings.check(n).level != "off" and n not in left)
    return NodeReport(
        seen.inventory.host,
        ran,
        tuple(findings),
        round(time.monotonic() - start, 3),
        seen.inventory.simulated,
    )


def inventories(path: str) -> list[Inventory]:
    """The inventories of a file; none where none is named. Raises InvalidRequest."""
    if not path:
        return []
    try:
        return read_inventories(Path(path).read_text(), path)
    except (OSError, UnicodeDecodeError, BadInventory) as error:
        raise InvalidRequest(
            f"{path}: {getattr(error, 'strerror', None) or error}",
            asked="read what the node should have",
            would_work="podwright inventory --json, on nodes that are well, prints it, a line each",
        ) from None
