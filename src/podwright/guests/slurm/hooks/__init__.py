"""The service that Slurm's hooks call: its sockets, the check of who calls, the standby, and the
process that runs it all.
"""

from podwright.guests.slurm.hooks._hook_socket import slurm_uid
from podwright.guests.slurm.hooks._reach_vipu_server import addresses, reach, socket_of
from podwright.guests.slurm.hooks._service_process import serve

__all__ = ["addresses", "reach", "serve", "slurm_uid", "socket_of"]
