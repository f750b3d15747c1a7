"""What stands between an unmodified Slurm and the server: hooks ask it, and it keeps Slurm's
counts true. Everything it knows can be read again from the server and from Slurm."""

from podwright.slurm.pods.service._hook_socket import slurm_uid
from podwright.slurm.pods.service._job_request import Asked
from podwright.slurm.pods.service._job_start import in_short
from podwright.slurm.pods.service._pods import (
    Fixed,
    Line,
    Mapped,
    Pod,
    Site,
    dump,
    load,
    of_job,
    parse_licences,
)
from podwright.slurm.pods.service._queue import Listed, listed
from podwright.slurm.pods.service._retry_limit import Tries, comment, reference, tried
from podwright.slurm.pods.service._serve import serve
from podwright.slurm.pods.service._server_address import addresses, reach, socket_of
from podwright.slurm.pods.service._service import Service
from podwright.slurm.pods.service._sweep import Sweep
from podwright.slurm.pods.service._vipu_server import JobServer, ThreadedServer
from podwright.slurm.pods.service._work import Work, native_work

__all__ = [
    "Asked",
    "Fixed",
    "JobServer",
    "Line",
    "Listed",
    "Mapped",
    "Pod",
    "Service",
    "Site",
    "Sweep",
    "ThreadedServer",
    "Tries",
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
    "reference",
    "serve",
    "slurm_uid",
    "socket_of",
    "tried",
]
