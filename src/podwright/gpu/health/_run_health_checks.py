"""The table of checks, and the run of all of them: observes the node and returns a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.health import _gpu_checks as gpu
from podwright.gpu.health._findings import HealthFinding, NodeReport
from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._node_observation import LIBRARY_TIMEOUT_S, Seen, observe
from podwright.gpu.health._settings import Settings
from podwright.ground import plugins
from podwright.ground.judgement import Says
from podwright.hosts.gpus import BadInventory, Inventory, read_inventories

_GRAVEST_FIRST = (Says.NO, Says.NOT_KNOWN, Says.YES)


class Check(NamedTuple):
    """One row. limit: its bound; 0: none. unit: of the bound."""

    find: Callable[[CheckContext], Iterable[Wrong]]
    limit: float = 0.0
    unit: str = ""

    @property
    def about(self) -> str:
        """What the check requires, in a sentence."""
        return " ".join((self.find.__doc__ or "").split("\n\n")[0].split())


OWN_CHECKS: dict[str, Check] = {
    "driver": Check(gpu.driver, LIBRARY_TIMEOUT_S, "seconds to answer"),
    "gpus": Check(gpu.gpus),
    "kernel": Check(gpu.kernel),
    "recovery": Check(gpu.recovery),
    "errors": Check(gpu.errors, 0, "errors"),
    "links": Check(gpu.links),
    "adapters": Check(gpu.adapters),
}


def all_checks() -> dict[str, Check]:
    """Our own checks and those that other packages add. Raises Unavailable for a broken one."""
    return OWN_CHECKS | plugins.load_all(plugins.HEALTH_CHECKS, Check)


def judge(
    node_observation: Seen,
    settings: Settings,
    reference_inventory: Inventory | None = None,
    skipped_checks: Iterable[str] = (),
) -> list[HealthFinding]:
    """Return the findings, the most serious first.

    reference_inventory: this node as it should be. skipped_checks: checks that do not run now.
    """
    skipped_names = set(skipped_checks)
    findings = []
    for check_name, check in all_checks().items():
        check_settings = settings.check(check_name)
        if check_settings.level == "off" or check_name in skipped_names:
            continue
        limit = check.limit if check_settings.limit is None else check_settings.limit
        context = CheckContext(node_observation, settings, reference_inventory, limit)
        for wrong in check.find(context):
            if wrong.part in check_settings.ignore:
                continue
            says = Says.YES if check_settings.level == "warn" else wrong.says
            findings.append(HealthFinding(check_name, *wrong[:3], wrong.source, wrong.do, says))
    return sorted(findings, key=lambda finding: _GRAVEST_FIRST.index(finding.says))


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
    host = node_observation.inventory.host
    reference = next((listed for listed in node_inventories if listed.host == host), None)
    skipped_names = set(skip)
    findings = judge(node_observation, settings, reference, skipped_names)
    checks_run = tuple(
        name
        for name in all_checks()
        if settings.check(name).level != "off" and name not in skipped_names
    )
    return NodeReport(
        host,
        checks_run,
        tuple(findings),
        round(time.monotonic() - started_at, 3),
        _left_out(node_observation, checks_run, reference),
        node_observation.inventory.simulated,
    )


def _left_out(
    node_observation: Seen, checks_run: Sequence[str], reference: Inventory | None
) -> tuple[str, ...]:
    phrases = [f"the check {name}" for name in all_checks() if name not in checks_run]
    if not node_observation.gpus and not node_observation.pci:
        phrases.append("GPUs, since PCI and the drivers show none")
    if node_observation.log is None:
        phrases.append("the kernel's log, which only root may read")
    if reference is None and node_observation.nics:
        phrases.append("adapters that are missing, which only an inventory can tell")
    request = [seen_gpu for seen_gpu in node_observation.gpus if not seen_gpu.condition.recovery]
    if request:
        phrases.append("the driver's own request for a reset, which this driver does not tell")
    return tuple(phrases)


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
