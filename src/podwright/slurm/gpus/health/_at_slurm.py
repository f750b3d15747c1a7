"""A check that Slurm asked for: of a node every few minutes, before a job, or after one.

Before a job (Prolog) a node that is ill and stays drained sends the job elsewhere. After one
(Epilog) what the job itself left is told from a fault of the node: processes that are about to end
get a few seconds, XIDs of programs drain nothing, and the hook never fails, since Slurm would then
drain the node by itself, however many others it has drained so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from podwright.slurm.gpus.health._findings import HealthFinding, NodeReport, reason
from podwright.slurm.gpus.health._gate import GateOutcome, NodeGate
from podwright.slurm.gpus.health._gate_commands import Run, carry_out, runner, tell
from podwright.slurm.gpus.health._settings import Settings
from podwright.slurm.gpus.health._state import FOLDER, forgotten
from podwright.slurm.gpus.health._table import run

#: SLURM_SCRIPT_CONTEXT of slurmd's two hooks; a health check has none.
PROLOG, EPILOG = "prolog_slurmd", "epilog_slurmd"
#: How a Prolog ends on a node that is ill and stays drained. No program that breaks ends so: what
#: else a hook ends with counts as success, since Slurm drains a node whose hook failed, uncapped.
STAYS_DRAINED = 100
_GRACE = 3  # seconds for the processes of a job that has ended


class Checked(NamedTuple):
    """code: how the hook ends: 1 from a health check only puts the text into slurmd's log,
    STAYS_DRAINED from a Prolog sends the job elsewhere."""

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
    """Look, judge, tell Slurm. Raises InvalidRequest."""
    context = environ.get("SLURM_SCRIPT_CONTEXT", "")
    since = forgotten(folder)
    report = run(settings, environ, root=root, since=since)
    if context == EPILOG:
        report = _ended(report, settings, environ, root, since, sleep)
    why = reason(report.findings)
    node = environ.get("SLURMD_NODENAME") or report.host
    gate = NodeGate(node, settings.act, settings.cap)
    # Times as seconds since 1970: no time zone comes between nodes.
    ask = slurm or runner({**environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"})
    outcome = GateOutcome("fit")  # a hook of each job asks Slurm nothing while all is well
    if why or not context:
        outcome = carry_out(gate, why, ask, sleep, folder)
    if outcome.what not in ("fit", "left"):
        tell(f"{node} {outcome.what}: {why or outcome.why} ({outcome.why})")
    code = 1 if why and not context else 0
    if why and context == PROLOG and outcome.what in ("drained", "left"):
        code = STAYS_DRAINED
    return Checked(report, outcome, code)


def _ended(
    report: NodeReport,
    settings: Settings,
    environ: Mapping[str, str],
    root: str,
    since: float,
    sleep: Callable[[float], None],
) -> NodeReport:
    """The report once processes of the job that has ended had time to end as well."""
    for _ in range(_GRACE):
        if not any(finding.check == "processes" for finding in report.findings):
            break
        sleep(1)
        report = run(settings, environ, root=root, since=since)
    job = environ.get("SLURM_JOB_ID", "?")
    findings = tuple(_of_job(finding, job) for finding in report.findings)
    return msgspec.structs.replace(report, findings=findings)


def _of_job(finding: HealthFinding, job: str) -> HealthFinding:
    """A process that is left may be the job's: then no other job is to blame, nor the node."""
    if finding.check != "processes" or finding.level == "fail":
        return finding
    means = f"{finding.means} Job {job} has just ended here; it may have left it."
    return msgspec.structs.replace(finding, means=means)
