"""Configures a site's Slurm for Podwright, and undoes it."""

from podwright.guests.slurm.setup._build_hook_plugin import build
from podwright.guests.slurm.setup._check_by_small_jobs import promises
from podwright.guests.slurm.setup._check_environment import NOT_TRIED
from podwright.guests.slurm.setup._crash_repair_text import plan_text, plan_values
from podwright.guests.slurm.setup._plan_site_changes import (
    NativePlaces,
    missing,
    native,
    slurm_user,
    undo,
    window,
)
from podwright.guests.slurm.setup._pod_survey import mapping, shared, shelf, survey
from podwright.guests.slurm.setup._service_reachability import (
    check_server,
    far_door,
    munge_socket,
    server_host,
    without_munge,
)
from podwright.guests.slurm.setup._slurmctld_crash_repair import (
    LeftAlone,
    RecoveryPlan,
    RecoveryStep,
    StepResult,
    ask_for_plan,
    carry_out,
    recovery_plan,
)

__all__ = [
    "NOT_TRIED",
    "LeftAlone",
    "NativePlaces",
    "RecoveryPlan",
    "RecoveryStep",
    "StepResult",
    "ask_for_plan",
    "build",
    "carry_out",
    "check_server",
    "far_door",
    "mapping",
    "missing",
    "munge_socket",
    "native",
    "plan_text",
    "plan_values",
    "promises",
    "recovery_plan",
    "server_host",
    "shared",
    "shelf",
    "slurm_user",
    "survey",
    "undo",
    "window",
    "without_munge",
]
