"""What stands between an unmodified Slurm and the server: hooks ask it, and it keeps Slurm's
counts true. Everything it knows can be read again from the server and from Slurm."""

from podwright.slurm.service._commands import FakeSlurm, Said, Slurm, SlurmCommands
from podwright.slurm.service._pods import Line, Pod, Site, dump, load
from podwright.slurm.service._serve import serve
from podwright.slurm.service._server import Server, ThreadedServer
from podwright.slurm.service._service import Asked, Service
from podwright.slurm.service._sweep import Sweep

__all__ = [
    "Asked",
    "FakeSlurm",
    "Line",
    "Pod",
    "Said",
    "Server",
    "Service",
    "Site",
    "Slurm",
    "SlurmCommands",
    "Sweep",
    "ThreadedServer",
    "dump",
    "load",
    "serve",
]
