"""What stands between an unmodified Slurm and the server: hooks ask it, and it keeps Slurm's
counts true. Everything it knows can be read again from the server and from Slurm."""

from podwright.slurm.pods.service._asked import Asked
from podwright.slurm.pods.service._door import slurm_uid
from podwright.slurm.pods.service._life import in_short
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
from podwright.slurm.pods.service._reach import addresses, reach, socket_of
from podwright.slurm.pods.service._serve import Work, native_work, serve
from podwright.slurm.pods.service._server import Server, ThreadedServer
from podwright.slurm.pods.service._service import Service
from podwright.slurm.pods.service._sweep import Sweep
from podwright.slurm.pods.service._tries import Tries, comment, reference, tried

__all__ = [
    "Asked",
    "Fixed",
    "Line",
    "Listed",
    "Mapped",
    "Pod",
    "Server",
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
