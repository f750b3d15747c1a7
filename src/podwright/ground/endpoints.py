"""Where servers listen and commands look: sockets, ports, and the environment that names them.

Paths are plain strings: commands start without importing pathlib.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Names the folder that replaces / when the system's own files are looked up. Tests set it, so that
#: no server, store or setting of the machine that runs them reaches them.
ROOT_VARIABLE = "PODWRIGHT_ROOT"


def system_path(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the path of a system file below the root folder that the environment names.

    path: an absolute path. A root that is not absolute is ignored, as with XDG's folders.
    """
    root = environ.get(ROOT_VARIABLE, "").rstrip("/")
    return f"{root}{path}" if root.startswith("/") else path


#: The socket of the system's server, which serves every user of this machine.
SYSTEM_SOCKET = system_path("/run/podwright/server.sock")
#: The socket on which a machine's agent moves programs into the device cgroup of their partition.
AGENT_SOCKET = system_path("/run/podwright/agent.sock")
#: The environment variable that names another agent socket.
AGENT_SOCKET_VARIABLE = "PODWRIGHT_AGENT_SOCKET"
#: The environment variable that marks every process of a launch.
RUN_VARIABLE = "PODWRIGHT_RUN"
#: The environment variable that names the socket of a server.
SOCKET_VARIABLE = "PODWRIGHT_SOCKET"
#: The port of a V-IPU controller (PopRun guide 2.8).
DEFAULT_PORT = 8090


def user_socket(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> str:
    """Return the socket path of this user's own server.

    Its folder belongs to the user, mode 0700.
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    folder = f"/tmp/podwright-{os.getuid() if uid is None else uid}"
    return f"{runtime}/podwright/server.sock" if runtime[:1] == "/" else f"{folder}/server.sock"
