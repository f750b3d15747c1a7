"""Configures a site's Slurm for Podwright, and undoes it."""

from podwright.guests.slurm.setup._build import build
from podwright.guests.slurm.setup._checks import promises
from podwright.guests.slurm.setup._crash_remnants import (
    LeftAlone,
    RecoveryPlan,
    RecoveryStep,
    StepResult,
    ask_for_plan,
    carry_out,
    recovery_plan,
)
from podwright.guests.slurm.setup._native import NativePlaces, native, slurm_user, undo, window
from podwright.guests.slurm.setup._pod_survey import mapping, shared, shelf, survey
from podwright.guests.slurm.setup._reachability import (
    check_server,
    far_door,
    munge_socket,
    server_host,
    without_munge,
)
from podwright.guests.slurm.setup._recovery_text import plan_text, plan_values

__all__ = [
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
