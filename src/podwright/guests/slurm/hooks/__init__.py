"""The service that Slurm's hooks call: its sockets, the check of who calls, the standby, and the
process that runs it all.
"""

from podwright.guests.slurm.hooks._hook_socket import slurm_uid
from podwright.guests.slurm.hooks._serve import serve
from podwright.guests.slurm.hooks._server_address import addresses, reach, socket_of

__all__ = ["addresses", "reach", "serve", "slurm_uid", "socket_of"]
