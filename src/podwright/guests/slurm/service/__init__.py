"""The service between an unmodified Slurm and the server: it answers the hooks (`hooks`) and keeps
Slurm's counts true. Everything that it knows can be read again from the server and from Slurm.
"""

from ._hook_job_request import HookJob as HookJob
from ._job_start_text import in_short as in_short
from ._missed_hook_sweep import Sweep as Sweep
from ._native_mode import NativeMode as NativeMode
from ._native_service import Service as Service
from ._pods_and_licences import Fixed as Fixed
from ._pods_and_licences import Mapped as Mapped
from ._pods_and_licences import Site as Site
from ._pods_and_licences import SlurmPod as SlurmPod
from ._pods_and_licences import dump as dump
from ._pods_and_licences import load as load
from ._pods_and_licences import of_job as of_job
from ._pods_and_licences import parse_licences as parse_licences
from ._retry_limit import RetryLimit as RetryLimit
from ._retry_limit import comment as comment
from ._retry_limit import tried as tried
from ._squeue_jobs import Listed as Listed
from ._squeue_jobs import listed as listed
