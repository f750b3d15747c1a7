"""Joins the device cgroup of the partition, if the agent of this host keeps one.

The guardian asks the agent before it starts anything, so everything that it starts begins in that
cgroup. In a Slurm job it does not ask, since Slurm has a cgroup of its own for the job.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from podwright.errors import error_from_json
from podwright.ground.endpoints import AGENT_SOCKET, AGENT_SOCKET_VARIABLE

#: Seconds that the agent may take; it may wait for a change that is under way.
_AGENT_REPLY_TIMEOUT_S = 60.0


def agent_may_confine(environ: Mapping[str, str]) -> bool:
    """Return whether there is an agent to ask. If so, nothing may start before the partition
    exists.
    """
    socket = environ.get(AGENT_SOCKET_VARIABLE) or AGENT_SOCKET
    return "SLURM_JOB_ID" not in environ and os.path.exists(socket)


def enter_partition(environ: Mapping[str, str]) -> str:
    """Ask the agent to move this process into the partition's cgroup.

    Returns why it refused. Empty: it was done, or this host has no agent for that.
    """
    agent_socket = environ.get(AGENT_SOCKET_VARIABLE) or AGENT_SOCKET
    partition_name = environ.get("IPUOF_VIPU_API_PARTITION_ID", "")
    if not partition_name or "PODWRIGHT_GPUS" not in environ or not agent_may_confine(environ):
        return ""
    import socket  # 4 ms that other launches do not need

    agent_answer = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_AGENT_REPLY_TIMEOUT_S)
            connection.connect(agent_socket)
            connection.sendall(f"{partition_name}\n".encode())
            while not agent_answer.endswith(b"\n"):
                chunk = connection.recv(4096)
                if not chunk:
                    return f"the agent at {agent_socket} went away"
                agent_answer += chunk
    except OSError as error:
        return f"the agent at {agent_socket} does not answer: {error.strerror or error}"
    if not agent_answer.strip():
        return ""
    import json

    return error_from_json(json.loads(agent_answer)).message
