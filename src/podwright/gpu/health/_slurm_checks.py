"""Runs the health check on behalf of Slurm: every few minutes, before a job, or after one.

Before a job (Prolog), an unhealthy node that stays drained sends the job elsewhere. After a job
(Epilog), what the job itself left behind is told apart from a fault of the node: processes that are
about to end get a few seconds, and XIDs that a program caused drain nothing. The hook after a job
never fails, because Slurm would then drain the node by itself and ignore the limit on drained
nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from podwright.gpu.health._findings import HealthFinding, NodeReport, reason
from podwright.gpu.health._gate import GateOutcome, NodeGate
from podwright.gpu.health._gate_actions import Run, carry_out, log_line, runner
from podwright.gpu.health._settings import Settings
from podwright.gpu.health._state import FOLDER, forgotten
from podwright.gpu.health._table import run

#: SLURM_SCRIPT_CONTEXT of slurmd's two hooks; a health check has none.
PROLOG, EPILOG = "prolog_slurmd", "epilog_slurmd"
#: The exit code of a Prolog on a node that is ill and stays drained. No broken program ends with
#: it. Every other code of a hook counts as success, because Slurm drains a node whose hook failed,
#: without a limit.
STAYS_DRAINED = 100
_GRACE = 3  # seconds for the processes of a job to end


class Checked(NamedTuple):
    """The result of a hook. code: its exit code. From a health check, 1 only puts the text into
    slurmd's log; from a Prolog, STAYS_DRAINED sends the job elsewhere."""

    report: NodeReport
    outcome: GateOutcome
    code: int


def check(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    root: str = "/",
    folder: Path = FOLDER,
    slurm: Run | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Checked:
    """Observe this node, judge it, and tell Slurm. Raises InvalidRequest."""
    context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    since = forgotten(folder)
    report = run(settings, environ, root=root, since=since)
    if context == EPILOG:
        report = _write_endings(report, settings, environ, root, since, sleep)
    drain_reason = reason(report.findings)
    node = environ.get("SLURMD_NODENAME") or report.host
    gate = NodeGate(node, settings.act, settings.cap)
    # Times are seconds since 1970, so that time zones of nodes do not matter.
    ask = slurm or runner({**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"})
    outcome = GateOutcome("fit")  # while all is well, the hook of a job asks Slurm nothing
    if drain_reason or not context:
        outcome = carry_out(gate, drain_reason, ask, sleep, folder)
    if outcome.action not in ("fit", "left"):
        log_line(f"{node} {outcome.action}: {drain_reason or outcome.reason} ({outcome.reason})")
    code = 1 if drain_reason and not context else 0
    if drain_reason and context == PROLOG and outcome.action in ("drained", "left"):
        code = STAYS_DRAINED
    return Checked(report, outcome, code)


def _write_endings(
    report: NodeReport,
    settings: Settings,
    environ: Mapping[str, str],
    root: str,
    since: float,
    sleep: Callable[[float], None],
) -> NodeReport:
    """Return the report after processes of the ended job have had time to end as well."""
    for _ in range(_GRACE):
        if not any(finding.check == "processes" for finding in report.findings):
            break
        sleep(1)
        report = run(settings, environ, root=root, since=since)
    job = environ.get("SLURM_JOB_ID", "?")
    findings = tuple(_of_job(finding, job) for finding in report.findings)
    return msgspec.structs.replace(report, findings=findings)


def _of_job(finding: HealthFinding, job: str) -> HealthFinding:
    """Return a report that blames the ended job for a remaining process.

    The process may be that job's; then neither another job nor the node is to blame.
    """
    if finding.check != "processes" or finding.level == "fail":
        return finding
    means = f"{finding.means} Job {job} has just ended here; it may have left it."
    return msgspec.structs.replace(finding, means=means)
