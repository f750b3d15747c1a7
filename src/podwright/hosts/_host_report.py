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
from podwright.hosts._local import find_program, free_port
from podwright.hosts._namespaces import can_hold
from podwright.hosts._network import subnets

#: Seconds for each check that uses the network.
_TIMEOUT = 4

#: Precedes the facts on a line of output, since login scripts may print something too.
MARK = "podwright-facts "


def facts(folder: str, token: str, back: str, server: str, port: str) -> dict[str, Any]:
    """Return all facts of this host. A fact that could not be determined is None or empty."""
    return {
        "time": time.time(),
        "name": os.uname().nodename,
        "python": platform.python_version(),
        "podwright": __version__,
        "mpirun": _mpirun(),
        "folder": os.path.isdir(folder),
        "same_files": os.path.exists(os.path.join(folder, token)) if token else None,
        "subnets": [list(subnet) for subnet in subnets()],
        "port": _port(),
        "held": list(can_hold()),
        "locked": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "back": _back(back) if back else None,
        "server": _server(server, int(port)) if server else None,
    }


def _mpirun() -> str:
    program = find_program("mpirun", os.environ, os.path.dirname(sys.executable))
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    words = done.stdout.split()
    return next((word for word in words if word[:1].isdigit()), "")


def _port() -> int:
    try:
        return free_port("")
    except OSError:
        return 0


def _back(address: str) -> str:
    """Return an empty text if ssh leads back, else its message."""
    options = ["-oBatchMode=yes", f"-oConnectTimeout={_TIMEOUT}"]
    try:
        done = subprocess.run(
            ["ssh", "-T", *options, "--", address, "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * _TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or "ssh failed"


def _server(host: str, port: int) -> str:
    """Return an empty text if the server accepts a connection, else the reason."""
    import socket

    try:
        socket.create_connection((host, port), timeout=_TIMEOUT).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def main(argv: Sequence[str]) -> int:
    """Print the facts."""
    folder, token, back, server, port = argv
    print(MARK + json.dumps(facts(folder, token, back, server, port)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
