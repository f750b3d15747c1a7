"""Where servers listen and commands look: sockets, ports, and the environment that names them.

Paths are plain strings: commands start without importing pathlib.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

#: The system's server, for everybody on this machine.
SYSTEM_SOCKET = "/run/podwright/server.sock"
#: Where a machine's agent moves programs into the device cgroup of their partition.
AGENT_SOCKET = "/run/podwright/agent.sock"
#: Names the socket of another one.
AGENT_SOCKET_VARIABLE = "PODWRIGHT_AGENT_SOCKET"
#: Marks everything that a launch starts, in its environment.
RUN_VARIABLE = "PODWRIGHT_RUN"
#: Names the socket of one server.
SOCKET_VARIABLE = "PODWRIGHT_SOCKET"
#: The port of a V-IPU controller (PopRun guide 2.8).
DEFAULT_PORT = 8090


def user_socket(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> str:
    """The socket of this user's own server. Its folder is private: 0700, and its owner's."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    folder = f"/tmp/podwright-{os.getuid() if uid is None else uid}"
    return f"{runtime}/podwright/server.sock" if runtime[:1] == "/" else f"{folder}/server.sock"
