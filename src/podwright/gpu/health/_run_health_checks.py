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
from podwright.gpu.health._node_observation import LIBRARY_TIMEOUT_S, Seen, observe
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


OWN_CHECKS: dict[str, Check] = {
    "library": Check(gpu.libraries, "fail", LIBRARY_TIMEOUT_S, "seconds to answer"),
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
    return OWN_CHECKS | plugins.load_all(plugins.HEALTH_CHECKS, Check)


def judge(
    node_observation: Seen,
    settings: Settings,
    peer_inventories: Iterable[Inventory] = (),
    skipped_checks: Iterable[str] = (),
) -> list[HealthFinding]:
    """Return the findings, the most serious first.

    peer_inventories: inventories of nodes, including this one as it should be. skipped_checks:
    checks that do not run now.
    """
    all_inventories = tuple(peer_inventories)
    reference_inventory = next(
        (
            inventory
            for inventory in all_inventories
            if inventory.host == node_observation.inventory.host
        ),
        None,
    )
    gpu_types = _gpu_types(reference_inventory or node_observation.inventory)
    same_kind_inventories = tuple(
        inventory
        for inventory in all_inventories
        if _gpu_types(inventory) == gpu_types and gpu_types
    )
    skipped_names = set(skipped_checks)
    findings = []
    for check_name, check in all_checks().items():
        check_settings = settings.check(check_name)
        if check_settings.level == "off" or check_name in skipped_names:
            continue
        check_limit = check.limit if check_settings.limit is None else check_settings.limit
        for check_result in check.find(
            CheckContext(
                node_observation, settings, reference_inventory, same_kind_inventories, check_limit
            )
        ):
            if check_result.part in check_settings.ignore:
                continue
            finding_level = check_result.level or check.level
            if check_settings.level and finding_level != "note":
                finding_level = (
                    check_settings.level
                    if not check_result.level
                    else min(check_settings.level, finding_level, key=_level_rank)
                )
            findings.append(
                HealthFinding(check_name, finding_level, check_result.part, *check_result[1:4])
            )
    return sorted(findings, key=lambda health_finding: -_level_rank(health_finding.level))


def _level_rank(finding_level: str) -> int:
    return ("note", "warn", "fail").index(finding_level)


def _gpu_types(inventory: Inventory) -> tuple[str, ...]:
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
    started_at = time.monotonic()
    node_inventories = inventories(settings.inventory)
    node_observation = observe(settings, environ, root, since)
    skipped_names = set(skip)
    findings = judge(node_observation, settings, node_inventories, skipped_names)
    checks_run = tuple(
        check_name
        for check_name in all_checks()
        if settings.check(check_name).level != "off" and check_name not in skipped_names
    )
    return NodeReport(
        node_observation.inventory.host,
        checks_run,
        tuple(findings),
        round(time.monotonic() - started_at, 3),
        node_observation.inventory.simulated,
    )


def inventories(inventory_path: str) -> list[Inventory]:
    """The inventories in a file; empty where no file is named. Raises InvalidRequest."""
    if not inventory_path:
        return []
    try:
        return read_inventories(Path(inventory_path).read_text(), inventory_path)
    except (OSError, UnicodeDecodeError, BadInventory) as error:
        raise InvalidRequest(
            f"{inventory_path}: {getattr(error, 'strerror', None) or error}",
            operation="read what the node should have",
            would_work="podwright inventory --json, on nodes that are well, prints it, a line each",
        ) from None
