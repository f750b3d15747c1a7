"""The service that Slurm's hooks call: its sockets, the check of who calls, the standby, and the
process that runs it all.
"""

from ._hook_socket import slurm_uid as slurm_uid
from ._reach_vipu_server import addresses as addresses
from ._reach_vipu_server import reach as reach
from ._reach_vipu_server import socket_of as socket_of
from ._service_process import serve as serve
