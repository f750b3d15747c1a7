"""The service between an unmodified Slurm and the server: it answers the hooks (`hooks`) and keeps
Slurm's counts true. Everything that it knows can be read again from the server and from Slurm.
"""

from podwright.guests.slurm.service._hook_job_request import HookJob
from podwright.guests.slurm.service._job_start_text import in_short
from podwright.guests.slurm.service._missed_hook_sweep import Sweep
from podwright.guests.slurm.service._native_service import Service
from podwright.guests.slurm.service._pods_and_licences import (
    Fixed,
    Mapped,
    Site,
    SlurmPod,
    dump,
    load,
    of_job,
    parse_licences,
)
from podwright.guests.slurm.service._retry_limit import RetryLimit, comment, tried
from podwright.guests.slurm.service._squeue_jobs import Listed, listed
from podwright.guests.slurm.service._way_interface import Work, native_work

__all__ = [
    "Fixed",
    "HookJob",
    "Listed",
    "Mapped",
    "RetryLimit",
    "Service",
    "Site",
    "SlurmPod",
    "Sweep",
    "Work",
    "comment",
    "dump",
    "in_short",
    "listed",
    "load",
    "native_work",
    "of_job",
    "parse_licences",
    "tried",
]
