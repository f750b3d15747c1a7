"""Into the device cgroup of the partition, where the agent of this host keeps one.

The guardian asks for itself before it starts anything, and all that it starts begins there. In a
job of Slurm's nothing is asked: Slurm has a cgroup of its own for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from podwright.endpoints import AGENT_SOCKET, AGENT_SOCKET_VARIABLE
from podwright.errors import error_from_json

#: Seconds that the agent may take; it may wait for a change that is under way.
_PATIENCE = 60.0


def may_confine(environ: Mapping[str, str]) -> bool:
    """Whether there is an agent to ask: then nothing may be started before there is a partition."""
    path = environ.get(AGENT_SOCKET_VARIABLE) or AGENT_SOCKET
    return "SLURM_JOB_ID" not in environ and os.path.exists(path)


def enter_partition(environ: Mapping[str, str]) -> str:
    """Ask to be moved. Returns why it was refused; empty where it was done, or is not done here."""
    path = environ.get(AGENT_SOCKET_VARIABLE) or AGENT_SOCKET
    name = environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    if not name or "PODWRIGHT_GPUS" not in environ or not may_confine(environ):
        return ""
    import socket  # 4 ms that other launches need not pay

    said = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_PATIENCE)
            line.connect(path)
            line.sendall(f"{name}\n".encode())
            while not said.endswith(b"\n"):
                more = line.recv(4096)
                if not more:
                    return f"the agent at {path} went away"
                said += more
    except OSError as error:
        return f"the agent at {path} does not answer: {error.strerror or error}"
    if not said.strip():
        return ""
    import json

    return error_from_json(json.loads(said)).message
