"""Checks whether a GPU node is fit for jobs, and drains or resumes it in Slurm."""

from podwright.gpu.health._drain_actions import Run, carry_out, log_warning, runner
from podwright.gpu.health._drain_decisions import (
    LIST_NODES_COMMAND,
    GateOutcome,
    NodeGate,
    NodeRow,
    read_rows,
)
from podwright.gpu.health._findings import HELD_PREFIX, HealthFinding, NodeReport, reason
from podwright.gpu.health._format_health_report import checks, prometheus, text
from podwright.gpu.health._gpu_checks import CheckContext, Wrong
from podwright.gpu.health._node_health_state import (
    CLEAN_FOLDER,
    FOLDER,
    forget,
    forgotten,
    replace,
)
from podwright.gpu.health._node_observation import LIBRARY_TIMEOUT_S
from podwright.gpu.health._probe_with_timeout import apart
from podwright.gpu.health._run_health_checks import Check, all_checks, run
from podwright.gpu.health._settings import PLACE, Settings, read_settings
from podwright.gpu.health._slurm_health_hook import EPILOG, PROLOG, STAYS_DRAINED, Checked, check

__all__ = [
    "CLEAN_FOLDER",
    "EPILOG",
    "FOLDER",
    "HELD_PREFIX",
    "LIBRARY_TIMEOUT_S",
    "LIST_NODES_COMMAND",
    "PLACE",
    "PROLOG",
    "STAYS_DRAINED",
    "Check",
    "CheckContext",
    "Checked",
    "GateOutcome",
    "HealthFinding",
    "NodeGate",
    "NodeReport",
    "NodeRow",
    "Run",
    "Settings",
    "Wrong",
    "all_checks",
    "apart",
    "carry_out",
    "check",
    "checks",
    "forget",
    "forgotten",
    "log_warning",
    "prometheus",
    "read_rows",
    "read_settings",
    "reason",
    "replace",
    "run",
    "runner",
    "text",
]
