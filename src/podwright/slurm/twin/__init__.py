"""A twin of a site's controller: its own slurmctld, started privately and asked what it would do.

`find_slurm` finds a Slurm on this machine; `Twin(site, slurm)` starts it over nodes that do not
exist. `Twin.ask` submits a request to it and returns Slurm's own answer, `Twin.tasks` what each
task of the job sees. `docs/design/twin.md` describes how it is kept from other users, and what is
taken over from the site.
"""

from podwright.slurm.twin._copy_cluster_state import present_copied
from podwright.slurm.twin._find_slurm import find_slurm
from podwright.slurm.twin._site_users_groups import read_names
from podwright.slurm.twin._twin import Twin
from podwright.slurm.twin._twin_conf import TWIN_SETTINGS, allowed_groups, same_files, site_rows
from podwright.slurm.twin._twin_types import (
    FilledTwin,
    Granted,
    GrantedNode,
    InstalledSlurm,
    Present,
    Refused,
    SiteFiles,
    SiteNames,
    Submission,
    Task,
    Waits,
)

__all__ = [
    "TWIN_SETTINGS",
    "FilledTwin",
    "Granted",
    "GrantedNode",
    "InstalledSlurm",
    "Present",
    "Refused",
    "SiteFiles",
    "SiteNames",
    "Submission",
    "Task",
    "Twin",
    "Waits",
    "allowed_groups",
    "find_slurm",
    "present_copied",
    "read_names",
    "same_files",
    "site_rows",
]
