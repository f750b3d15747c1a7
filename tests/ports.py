"""Ports for servers that must be told where to listen.

Between the choice and the server's own bind nobody else may come: they lie below the range from
which the kernel serves clients, and a name that this process holds until its end keeps every
other test process on this network from choosing the same.
"""

from __future__ import annotations

import atexit
import random
import socket

_held: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens at, and that nobody else will be given."""
    chosen: list[int] = []
    for port in random.SystemRandom().sample(range(15000, 32000), 4000):
        if len(chosen) == count:
            return chosen
        if _hold(port):
            chosen.append(port)
    raise OSError("no free ports")


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def free_row(count: int, apart: int) -> int:
    """The first of so many of them, each so far from the one before."""
    while True:
        first = free_port()
        if all(_hold(first + step * apart) for step in range(1, count)):
            return first


@atexit.register
def _let_go() -> None:
    for name in _held:
        name.close()


def _hold(port: int) -> bool:
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0podwright-test-port-{port}")
        with socket.socket() as probe:
            probe.bind(("0.0.0.0", port))
    except OSError:
        name.close()
        return False
    _held.append(name)
    return True
