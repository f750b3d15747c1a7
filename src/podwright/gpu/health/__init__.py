"""Checks whether a GPU node is fit for jobs, and drains or resumes it in Slurm."""

from podwright.gpu.health._drain_decisions import GateOutcome
from podwright.gpu.health._findings import HealthFinding, NodeReport, reason
from podwright.gpu.health._format_health_report import checks, prometheus, text
from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._node_health_state import FOLDER, forget, forgotten, replace
from podwright.gpu.health._run_health_checks import Check, all_checks, run
from podwright.gpu.health._settings import PLACE, Settings, read_settings
from podwright.gpu.health._slurm_health_hook import STAYS_DRAINED, Checked, check

__all__ = [
    "FOLDER",
    "PLACE",
    "STAYS_DRAINED",
    "Check",
    "CheckContext",
    "Checked",
    "GateOutcome",
    "HealthFinding",
    "NodeReport",
    "Settings",
    "Wrong",
    "all_checks",
    "check",
    "checks",
    "forget",
    "forgotten",
    "prometheus",
    "read_settings",
    "reason",
    "replace",
    "run",
    "text",
]
