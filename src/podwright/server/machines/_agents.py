"""How a server reaches the agents of machines: with which key, and through which interface."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from podwright.agents import Driver, RemoteMachine, Secret, machine_key, read_key
from podwright.controller import Discovery, Machines
from podwright.errors import InvalidRequest
from podwright.hosts import is_loopback

_SIOCGIFADDR = 0x8915


def reach(
    key: Path | None,
    silence: float,
    interfaces: Sequence[str],
    *,
    own_key: Path | None = None,
    certs: Path | None = None,
    secure: Callable[[], bool] = lambda: False,
) -> Machines:
    """Return how agents are reached.

    key: the file of the key that they share with the server. own_key: the file of a key for agents
    on this machine, where `key` is not set; it is made when it is first needed. silence: seconds
    after which a silent agent is given up. interfaces: those on which announcements count. certs:
    the folder of the server's TLS certificates, which a secure server presents to agents. Raises
    wire.InvalidRequest for a key that cannot be used and for an interface that does not exist.
    """
    known = {name for _, name in socket.if_nameindex()}
    for name in interfaces:
        if name not in known:
            raise InvalidRequest(
                f"there is no network interface {name}",
                operation="listen for agents",
                would_work=f"choose one of {', '.join(sorted(known))}",
            )
    secret = Secret(read_key(key)) if key is not None else None
    us = ("", 0)

    def introduce(server: str, epoch: int) -> None:
        nonlocal us
        us = (server, epoch)
        if secret is not None:
            secret.introduce(server, epoch)

    def connect(name: str, host: str, port: int, *, certificate: str = "") -> Driver:
        tls = certs if secure() else None
        if certificate and tls is None:
            raise InvalidRequest(
                "without TLS nobody shows a certificate",
                operation=f"believe certificate {certificate} of {name} alone",
                would_work="start vipu-server with --secure and --tls-certs",
            )
        if secret is None and tls is None and not is_loopback(host):
            raise InvalidRequest(
                f"{host} is another machine, where anybody might answer",
                operation=f"reach the agent of {name}",
                would_work="start vipu-server with --agent-key FILE, a key that agents share, or "
                "with --secure and --tls-certs",
            )
        shared = secret
        if shared is None and tls is None and own_key is not None:
            shared = Secret(machine_key(own_key))
            shared.introduce(*us)
        return RemoteMachine(name, host, port, secret=shared, certs=tls, certificate=certificate)

    discovery = Discovery(tuple(interfaces), interface_to)
    return Machines(connect, introduce, silence, discovery)


def interface_to(host: str) -> str:
    """Return the interface through which a host is reached; empty when it is not.

    Nothing is sent.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            ours = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # an interface without an address
                    request = struct.pack("256s", name.encode()[:15])
                    answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                    if socket.inet_ntoa(answer[20:24]) == ours or (
                        name == "lo" and ours.startswith("127.")
                    ):
                        return name
    except OSError:
        return ""
    return ""
