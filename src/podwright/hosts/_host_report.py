"""A host's report to `podwright doctor`: `python -m podwright.hosts._host_report` on that host.

Arguments: a folder, the name of a file that the asking host has just put there, the address that
leads back to the asking host, and the server's host and port (any may be empty). The answer is a
mark and one line of JSON.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from podwright._version import __version__
from podwright.hosts._local_host_facts import find_program, free_port
from podwright.hosts._namespaces import can_hold
from podwright.hosts._network import subnets

#: Seconds for each check that uses the network.
_CHECK_TIMEOUT_S = 4

#: Precedes the facts on a line of output, since login scripts may print something too.
FACTS_LINE_PREFIX = "podwright-facts "


def facts(
    folder: str, token_name: str, return_address: str, server_host: str, server_port: str
) -> dict[str, Any]:
    """Return all facts of this host. A fact that could not be determined is None or empty."""
    return {
        "time": time.time(),
        "name": os.uname().nodename,
        "python": platform.python_version(),
        "podwright": __version__,
        "mpirun": _mpirun_version(),
        "folder": os.path.isdir(folder),
        "same_files": os.path.exists(os.path.join(folder, token_name)) if token_name else None,
        "subnets": [list(subnet) for subnet in subnets()],
        "port": _free_port_or_zero(),
        "held": list(can_hold()),
        "locked": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "back": _ssh_back_problem(return_address) if return_address else None,
        "server": _server_connect_problem(server_host, int(server_port)) if server_host else None,
    }


def _mpirun_version() -> str:
    path = find_program("mpirun", os.environ, os.path.dirname(sys.executable))
    if path is None:
        return ""
    try:
        mpirun_result = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    version_words = mpirun_result.stdout.split()
    return next((word for word in version_words if word[:1].isdigit()), "")


def _free_port_or_zero() -> int:
    try:
        return free_port("")
    except OSError:
        return 0


def _ssh_back_problem(return_address: str) -> str:
    """Return an empty text if ssh leads back, else its message."""
    options = ["-oBatchMode=yes", f"-oConnectTimeout={_CHECK_TIMEOUT_S}"]
    try:
        ssh_result = subprocess.run(
            ["ssh", "-T", *options, "--", return_address, "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * _CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if ssh_result.returncode == 0 else ssh_result.stderr.strip() or "ssh failed"


def _server_connect_problem(host: str, port: int) -> str:
    """Return an empty text if the server accepts a connection, else the reason."""
    import socket

    try:
        socket.create_connection((host, port), timeout=_CHECK_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def main(argv: Sequence[str]) -> int:
    """Print the facts."""
    folder, name, address, host, port = argv
    print(
        FACTS_LINE_PREFIX + json.dumps(facts(folder, name, address, host, port)),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
