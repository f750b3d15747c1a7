"""Configures a site's Slurm for Podwright, and undoes it."""

from ._build_hook_plugin import build as build
from ._check_by_small_jobs import promises as promises
from ._crash_repair_text import plan_text as plan_text
from ._crash_repair_text import plan_values as plan_values
from ._plan_site_changes import NativePlaces as NativePlaces
from ._plan_site_changes import native as native
from ._plan_site_changes import slurm_user as slurm_user
from ._plan_site_changes import undo as undo
from ._plan_site_changes import window as window
from ._pod_survey import mapping as mapping
from ._pod_survey import shared as shared
from ._pod_survey import shelf as shelf
from ._pod_survey import survey as survey
from ._service_reachability import check_server as check_server
from ._service_reachability import far_door as far_door
from ._service_reachability import munge_socket as munge_socket
from ._service_reachability import server_host as server_host
from ._service_reachability import without_munge as without_munge
from ._slurmctld_crash_repair import LeftAlone as LeftAlone
from ._slurmctld_crash_repair import RecoveryPlan as RecoveryPlan
from ._slurmctld_crash_repair import RecoveryStep as RecoveryStep
from ._slurmctld_crash_repair import StepResult as StepResult
from ._slurmctld_crash_repair import ask_for_plan as ask_for_plan
from ._slurmctld_crash_repair import carry_out as carry_out
from ._slurmctld_crash_repair import recovery_plan as recovery_plan
