"""What stands between an unmodified Slurm and the server: hooks ask it, and it keeps Slurm's
counts true. Everything it knows can be read again from the server and from Slurm."""

from podwright.slurm.pods.service._hook_socket import slurm_uid
from podwright.slurm.pods.service._job_request import HookJob
from podwright.slurm.pods.service._job_start import in_short
from podwright.slurm.pods.service._pods import (
    Fixed,
    Mapped,
    Site,
    SlurmPod,
    dump,
    load,
    of_job,
    parse_licences,
)
from podwright.slurm.pods.service._queue import Listed, listed
from podwright.slurm.pods.service._queue_sweep import Sweep
from podwright.slurm.pods.service._retry_limit import RetryLimit, comment, tried
from podwright.slurm.pods.service._serve import serve
from podwright.slurm.pods.service._server_address import addresses, reach, socket_of
from podwright.slurm.pods.service._service import Service
from podwright.slurm.pods.service._work import Work, native_work

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
    "addresses",
    "comment",
    "dump",
    "in_short",
    "listed",
    "load",
    "native_work",
    "of_job",
    "parse_licences",
    "reach",
    "serve",
    "slurm_uid",
    "socket_of",
    "tried",
]
