"""Checks whether a GPU node is fit for jobs, and drains or resumes it in Slurm."""

from podwright.gpu.health._findings import LEVELS, HealthFinding, NodeReport, reason
from podwright.gpu.health._gate import GateOutcome
from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._settings import PLACE, Settings, SiteScript, read_settings
from podwright.gpu.health._show import checks, prometheus, text
from podwright.gpu.health._slurm_checks import STAYS_DRAINED, Checked, check
from podwright.gpu.health._state import FOLDER, forget, forgotten, replace
from podwright.gpu.health._table import Check, all_checks, run
from podwright.gpu.health._xids import XIDS, xid

__all__ = [
    "FOLDER",
    "LEVELS",
    "PLACE",
    "STAYS_DRAINED",
    "XIDS",
    "Check",
    "CheckContext",
    "Checked",
    "GateOutcome",
    "HealthFinding",
    "NodeReport",
    "Settings",
    "SiteScript",
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
    "xid",
]
