"""A service beside slurmctld that answers what Slurm would do: `podwright slurm twin serve`.

`serve_twins` keeps twins of the controller warm with copies of its state, and answers on a Unix
socket and over TCP. `find_twin_service` finds a service from a login node, and asks it. What only
the server needs is loaded there alone: a client needs neither uvicorn nor a Slurm.
"""

from podwright.slurm.twin_service._twin_client import (
    CONFIG,
    SOCKET,
    TWIN_VARIABLE,
    TwinService,
    find_twin_service,
)
from podwright.slurm.twin_service._twin_question import TwinAnswer, TwinQuestion, takes_option

__all__ = [
    "CONFIG",
    "SOCKET",
    "TWIN_VARIABLE",
    "TwinAnswer",
    "TwinQuestion",
    "TwinService",
    "find_twin_service",
    "takes_option",
]
