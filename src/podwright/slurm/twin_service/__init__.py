"""A service beside slurmctld that answers what Slurm would do: `podwright slurm twin serve`.

`serve_twins` keeps twins of the controller warm with copies of its state, and answers on a Unix
socket and over TCP. `find_twin_service` finds a service from a login node, and asks it. What only
the server needs is loaded there alone: a client needs neither uvicorn nor a Slurm.
"""

from ._twin_client import CONFIG as CONFIG
from ._twin_client import SOCKET as SOCKET
from ._twin_client import TWIN_VARIABLE as TWIN_VARIABLE
from ._twin_client import TwinService as TwinService
from ._twin_client import find_twin_service as find_twin_service
from ._twin_question import TwinAnswer as TwinAnswer
from ._twin_question import TwinQuestion as TwinQuestion
from ._twin_question import takes_option as takes_option
