"""What stands between an unmodified Slurm and the server: hooks ask it, and it keeps Slurm's
counts true. Everything it knows can be read again from the server and from Slurm."""

from podwright.slurm.service._commands import FakeSlurm, Said, Slurm, SlurmCommands
from podwright.slurm.service._pods import Fixed, Line, Mapped, Pod, Site, dump, load
from podwright.slurm.service._serve import Work, native_work, serve
from podwright.slurm.service._server import Server, ThreadedServer
from podwright.slurm.service._service import Asked, Service
from podwright.slurm.service._sweep import Sweep
from podwright.slurm.service._when import explained

__all__ = [
    "Asked",
    "FakeSlurm",
    "Fixed",
    "Line",
    "Mapped",
    "Pod",
    "Said",
    "Server",
    "Service",
    "Site",
    "Slurm",
    "SlurmCommands",
    "Sweep",
    "ThreadedServer",
    "Work",
    "dump",
    "explained",
    "load",
    "native_work",
    "serve",
]
