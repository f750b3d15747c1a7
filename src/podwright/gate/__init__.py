"""The gRPC gate: a process of its own that reads strangers' bytes, and passes calls to the server.

Everything that arrives over TCP uses the time, memory and descriptors of this process. The server
receives only complete calls. Its Unix socket and web port keep answering beside it. The gate's
process loads the modules that import grpc; importing this package does not.
"""

from ._gate_process import Setup as Setup
from ._gate_process import spawn as spawn
from ._gate_process import words as words
from ._gate_server_link import Cancel as Cancel
from ._gate_server_link import Done as Done
from ._gate_server_link import End as End
from ._gate_server_link import GateCounted as GateCounted
from ._gate_server_link import GateLink as GateLink
from ._gate_server_link import GateRefused as GateRefused
from ._gate_server_link import LinkMessage as LinkMessage
from ._gate_server_link import Question as Question
from ._gate_server_link import ShownCredentials as ShownCredentials
from ._gate_server_link import from_server as from_server
from ._gate_server_link import to_server as to_server
