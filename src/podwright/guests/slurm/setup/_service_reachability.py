"""Reads from slurm.conf where a site's nodes are: whether steps there reach the service beside
slurmctld by its Unix socket, or need an address. Changes no file.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest
from podwright.hosts import HostsError, expand
from podwright.slurm.site.conf_lines import read_row, value
from podwright.slurm.site.files import lines, site_settings

#: The default port at which `slurm serve` listens for steps on other hosts.
PORT: Final = 8092


def far_door(slurm_conf: Path) -> str:
    """Return HOST:PORT where steps on other hosts can reach the service, by the names that they
    have for slurmctld's host.

    With several slurmctld there is an address for each, separated by commas. Returns "" where all
    nodes are on slurmctld's own host.
    """
    hosts = controllers(slurm_conf)
    if not hosts or (len(hosts) == 1 and not elsewhere(slurm_conf)):
        return ""
    return ",".join(
        f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}" for _, address in hosts
    )


def check_server(slurm_conf: Path, server_option: str) -> None:
    """Raise InvalidRequest where services on several hosts would each look for vipu-server on their
    own host.

    server_option: the value of `--server`.
    """
    controller_names = [name for name, _ in controllers(slurm_conf)]
    is_local = not server_option.startswith("tcp:") or any(
        map(_is_local, _server_host_names(server_option))
    )
    if len(controller_names) > 1 and is_local:
        raise InvalidRequest(
            f"slurm.conf has slurmctld on {' and '.join(controller_names)}, and a service beside "
            "each: they would look for vipu-server on their own host",
            operation=f"--server {server_option}" if server_option else "no --server",
            would_work="--server tcp:HOST:PORT[,HOST:PORT], as all of them know vipu-server",
        )


def server_host(slurm_conf: Path, host_option: str | None, remote_server: str | None) -> str:
    """Return where jobs reach vipu-server.

    host_option: the value of `--host`. remote_server: the host in `--server tcp:`; None: it is on
    this host. Raises InvalidRequest for an address that means another host on each node.
    """
    remote_node = elsewhere(slurm_conf)
    chosen_host = (
        host_option or remote_server or (remote_node and _controller(slurm_conf)[1]) or "localhost"
    )
    if remote_node and _is_local(chosen_host):
        raise InvalidRequest(
            f"jobs on {remote_node} would look for vipu-server on their own host ({chosen_host})",
            operation=f"--host {chosen_host}"
            if host_option
            else f"--server tcp:{chosen_host}"
            if remote_server
            else "no --host",
            would_work="--host with the name by which the nodes know vipu-server's host",
        )
    return chosen_host


def elsewhere(slurm_conf: Path) -> str:
    """Return a node that is on another host than slurmctld, or "" if there is none."""
    controller_name, controller_address = _controller(slurm_conf)
    local_names = {
        controller_name,
        controller_address,
        socket.gethostname(),
        socket.gethostname().partition(".")[0],
    }
    node_addresses = [
        node_address for line in lines(slurm_conf) for node_address in _node_addresses(line)
    ]
    remote_nodes = (
        node_address
        for node_address in node_addresses
        if node_address not in local_names and not _is_local(node_address)
    )
    return next(remote_nodes, "" if node_addresses else "the nodes")


def controllers(slurm_conf: Path) -> list[tuple[str, str]]:
    """Return the hosts of slurmctld, the primary first, each with the address by which others reach
    it.
    """
    hosts = []
    for line in lines(slurm_conf):
        setting_name, _, entry = line.partition("=")
        if setting_name.strip().lower() == "slurmctldhost":
            host_name, _, text = entry.strip().partition("(")
            hosts.append((host_name, text.rstrip(")") or host_name))
    return hosts


def _controller(slurm_conf: Path) -> tuple[str, str]:
    """Return the first of them, or two empty strings where slurm.conf names none."""
    return next(iter(controllers(slurm_conf)), ("", ""))


def _server_host_names(server: str) -> list[str]:
    return [port.rpartition(":")[0] or port for port in server.removeprefix("tcp:").split(",")]


def _is_local(host: str) -> bool:
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def without_munge(slurm_conf: Path) -> bool:
    """Return whether Slurm's own daemons know each other by a key (auth/slurm)."""
    return site_settings(slurm_conf).get("authtype", "").lower() == "auth/slurm"


def munge_socket(slurm_conf: Path) -> str:
    """Return MUNGE's socket where AuthInfo names one, or ""."""
    authinfo = site_settings(slurm_conf).get("authinfo", "")
    return next(
        (parameter[7:] for parameter in authinfo.split(",") if parameter.startswith("socket=")), ""
    )


def _node_addresses(conf_line: str) -> list[str]:
    """Return the addresses of the nodes that a line defines, or none for other lines."""
    row = read_row(conf_line)
    node_name = value(row, "NodeName")
    if not node_name or node_name.upper() == "DEFAULT":
        return []
    try:
        return list(expand(value(row, "NodeAddr") or value(row, "NodeHostName") or node_name))
    except HostsError:
        return [node_name]
