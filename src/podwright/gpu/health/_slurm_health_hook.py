"""Runs the health check on behalf of Slurm: every few minutes, before a job, or after one.

Before a job (Prolog), a sick node that stays drained sends the job elsewhere. The hook after a job
(Epilog) never fails, because Slurm would then drain the node by itself and ignore the limit on
drained nodes. A node of which it is not known whether it is fit is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from podwright.gpu.health._drain_actions import Run, carry_out, log_warning, runner
from podwright.gpu.health._drain_decisions import GateOutcome, NodeGate
from podwright.gpu.health._findings import NodeReport, reason
from podwright.gpu.health._node_health_state import FOLDER, forgotten
from podwright.gpu.health._run_health_checks import run
from podwright.gpu.health._settings import Settings

#: SLURM_SCRIPT_CONTEXT of a Prolog and of an Epilog; a health check has none.
PROLOG, EPILOG = "prolog_slurmd", "epilog_slurmd"
#: The exit code of a Prolog on a node that is ill and stays drained. No broken program ends with
#: it. Every other code of a hook counts as success, because Slurm drains a node whose hook failed,
#: without a limit.
STAYS_DRAINED = 100


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
    drain_reason = reason(node_report.findings)
    node_name = environ.get("SLURMD_NODENAME") or node_report.host
    node_gate = NodeGate(node_name, settings.act, settings.cap)
    # Times are seconds since 1970, so that time zones of nodes do not matter.
    slurm_runner = slurm or runner({**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"})
    gate_outcome = GateOutcome("fit")  # while all is well, the hook of a job asks Slurm nothing
    if node_report.fit is None:
        gate_outcome = GateOutcome("unknown", node_report.judgement.because)
    elif drain_reason or not script_context:
        gate_outcome = carry_out(node_gate, drain_reason, slurm_runner, sleep, folder)
    if gate_outcome.action not in ("fit", "left"):
        log_warning(
            f"{node_name} {gate_outcome.action}: {drain_reason or gate_outcome.reason} "
            f"({gate_outcome.reason})"
        )
    exit_code = 1 if not node_report.fit and not script_context else 0
    if drain_reason and script_context == PROLOG and gate_outcome.action in ("drained", "left"):
        exit_code = STAYS_DRAINED
    return Checked(node_report, gate_outcome, exit_code)
