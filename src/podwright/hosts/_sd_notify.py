"""Tells systemd that a service answers (sd_notify(3)).

A unit that systemd starts after this one, and a command typed after `systemctl start`, then finds
the service ready. A command that came too early would take the missing socket for no server at all.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from contextlib import suppress

_SOCKET_VARIABLE = "NOTIFY_SOCKET"


def tell_ready(environ: MutableMapping[str, str] = os.environ) -> None:
    """Report once that this process is ready, if systemd started it and waits for the report."""
    path = environ.pop(_SOCKET_VARIABLE, "")
    if not path.startswith(("/", "@")):
        return
    import socket  # 4 ms that every command would pay otherwise

    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify_socket:
        notify_socket.sendto(b"READY=1", address)
