"""Is a GPU node fit for jobs? Checks by a table, and what Slurm is told of it."""

from podwright.slurm.gpus.health._at_slurm import STAYS_DRAINED, Checked, check
from podwright.slurm.gpus.health._findings import LEVELS, HealthFinding, NodeReport, reason
from podwright.slurm.gpus.health._gate import GateOutcome
from podwright.slurm.gpus.health._gpu_checks import CheckContext, Wrong
from podwright.slurm.gpus.health._settings import PLACE, Settings, SiteScript, read_settings
from podwright.slurm.gpus.health._show import checks, prometheus, text
from podwright.slurm.gpus.health._state import FOLDER, forget, forgotten, replace
from podwright.slurm.gpus.health._table import Check, all_checks, run
from podwright.slurm.gpus.health._xids import XIDS, xid

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
