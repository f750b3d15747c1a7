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
    agent_key_file: Path | None,
    silence_s: float,
    listen_interfaces: Sequence[str],
    *,
    own_key: Path | None = None,
    certs: Path | None = None,
    secure: Callable[[], bool] = lambda: False,
) -> Machines:
    """Return how agents are reached.

    agent_key_file: the file of the key that they share with the server. own_key: the file of a key
    for agents on this machine, where `agent_key_file` is not set; it is made when it is first
    needed. silence_s: seconds after which a silent agent is given up. listen_interfaces: those on
    which announcements count. certs: the folder of the server's TLS certificates, which a secure
    server presents to agents. Raises wire.InvalidRequest for a key that cannot be used and for an
    interface that does not exist.
    """
    known_interfaces = {interface_name for _, interface_name in socket.if_nameindex()}
    for interface_name in listen_interfaces:
        if interface_name not in known_interfaces:
            raise InvalidRequest(
                f"there is no network interface {interface_name}",
                operation="listen for agents",
                would_work=f"choose one of {', '.join(sorted(known_interfaces))}",
            )
    agent_secret = Secret(read_key(agent_key_file)) if agent_key_file is not None else None
    server_and_epoch = ("", 0)

    def introduce(server: str, epoch: int) -> None:
        nonlocal server_and_epoch
        server_and_epoch = (server, epoch)
        if agent_secret is not None:
            agent_secret.introduce(server, epoch)

    def connect(name: str, host: str, port: int, *, certificate: str = "") -> Driver:
        presented_certs = certs if secure() else None
        if certificate and presented_certs is None:
            raise InvalidRequest(
                "agents show certificates only with TLS",
                operation=f"believe certificate {certificate} of {name} alone",
                would_work="start vipu-server with --secure and --tls-certs",
            )
        if agent_secret is None and presented_certs is None and not is_loopback(host):
            raise InvalidRequest(
                f"{host} is another machine, where anybody might answer",
                operation=f"reach the agent of {name}",
                would_work="start vipu-server with --agent-key FILE, a key that agents share, or "
                "with --secure and --tls-certs",
            )
        agent_secret_used = agent_secret
        if agent_secret_used is None and presented_certs is None and own_key is not None:
            agent_secret_used = Secret(machine_key(own_key))
            agent_secret_used.introduce(*server_and_epoch)
        return RemoteMachine(
            name,
            host,
            port,
            secret=agent_secret_used,
            certs_folder=presented_certs,
            certificate=certificate,
        )

    discovery = Discovery(tuple(listen_interfaces), interface_to)
    return Machines(connect, introduce, silence_s, discovery)


def interface_to(host: str) -> str:
    """Return the interface through which a host is reached; empty when it is not.

    Nothing is sent.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe_socket:
            probe_socket.connect((host, 9))
            own_address = probe_socket.getsockname()[0]
            for _, interface_name in socket.if_nameindex():
                with contextlib.suppress(OSError):  # an interface without an address
                    ioctl_request = struct.pack("256s", interface_name.encode()[:15])
                    ioctl_answer = fcntl.ioctl(probe_socket.fileno(), _SIOCGIFADDR, ioctl_request)
                    if socket.inet_ntoa(ioctl_answer[20:24]) == own_address or (
                        interface_name == "lo" and own_address.startswith("127.")
                    ):
                        return interface_name
    except OSError:
        return ""
    return ""
