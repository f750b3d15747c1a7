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

from podwright.gpu.health._drain_actions import Run, carry_out, log_warning, runner
from podwright.gpu.health._drain_decisions import GateOutcome, NodeGate
from podwright.gpu.health._findings import HealthFinding, NodeReport, reason
from podwright.gpu.health._node_health_state import FOLDER, forgotten
from podwright.gpu.health._run_health_checks import run
from podwright.gpu.health._settings import Settings

#: SLURM_SCRIPT_CONTEXT of slurmd's two hooks; a health check has none.
PROLOG, EPILOG = "prolog_slurmd", "epilog_slurmd"
#: The exit code of a Prolog on a node that is ill and stays drained. No broken program ends with
#: it. Every other code of a hook counts as success, because Slurm drains a node whose hook failed,
#: without a limit.
STAYS_DRAINED = 100
_PROCESS_GRACE_S = 3  # seconds for the processes of a job to end


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
    script_context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    since_uptime_s = forgotten(folder)
    node_report = run(settings, environ, root=root, since=since_uptime_s)
    if script_context == EPILOG:
        node_report = _report_after_grace(
            node_report, settings, environ, root, since_uptime_s, sleep
        )
    drain_reason = reason(node_report.findings)
    node_name = environ.get("SLURMD_NODENAME") or node_report.host
    node_gate = NodeGate(node_name, settings.act, settings.cap)
    # Times are seconds since 1970, so that time zones of nodes do not matter.
    slurm_runner = slurm or runner({**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"})
    gate_outcome = GateOutcome("fit")  # while all is well, the hook of a job asks Slurm nothing
    if drain_reason or not script_context:
        gate_outcome = carry_out(node_gate, drain_reason, slurm_runner, sleep, folder)
    if gate_outcome.action not in ("fit", "left"):
        log_warning(
            f"{node_name} {gate_outcome.action}: {drain_reason or gate_outcome.reason} "
            f"({gate_outcome.reason})"
        )
    exit_code = 1 if drain_reason and not script_context else 0
    if drain_reason and script_context == PROLOG and gate_outcome.action in ("drained", "left"):
        exit_code = STAYS_DRAINED
    return Checked(node_report, gate_outcome, exit_code)


def _report_after_grace(
    node_report: NodeReport,
    settings: Settings,
    environ: Mapping[str, str],
    root_folder: str,
    since_uptime_s: float,
    sleep: Callable[[float], None],
) -> NodeReport:
    """Return the report after processes of the ended job have had time to end as well."""
    for _ in range(_PROCESS_GRACE_S):
        if not any(health_finding.check == "processes" for health_finding in node_report.findings):
            break
        sleep(1)
        node_report = run(settings, environ, root=root_folder, since=since_uptime_s)
    job_id = environ.get("SLURM_JOB_ID", "?")
    findings = tuple(
        _blame_ended_job(health_finding, job_id) for health_finding in node_report.findings
    )
    return msgspec.structs.replace(node_report, findings=findings)


def _blame_ended_job(health_finding: HealthFinding, job_id: str) -> HealthFinding:
    """Return a report that blames the ended job for a remaining process.

    The process may be that job's; then neither another job nor the node is to blame.
    """
    if health_finding.check != "processes" or health_finding.level == "fail":
        return health_finding
    blaming_text = f"{health_finding.means} Job {job_id} has just ended here; it may have left it."
    return msgspec.structs.replace(health_finding, means=blaming_text)
