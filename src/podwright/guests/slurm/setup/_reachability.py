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
from podwright.slurm.site.edit import settings
from podwright.slurm.site.files import lines

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


def check_server(slurm_conf: Path, server: str) -> None:
    """Raise InvalidRequest where services on several hosts would each look for vipu-server on their
    own host.

    server: the value of `--server`.
    """
    hosts = [name for name, _ in controllers(slurm_conf)]
    local = not server.startswith("tcp:") or any(map(_is_local, _hosts(server)))
    if len(hosts) > 1 and local:
        raise InvalidRequest(
            f"slurm.conf has slurmctld on {' and '.join(hosts)}, and a service beside each: they "
            "would look for vipu-server on their own host",
            operation=f"--server {server}" if server else "no --server",
            would_work="--server tcp:HOST:PORT[,HOST:PORT], as all of them know vipu-server",
        )


def server_host(slurm_conf: Path, option: str | None, server: str | None) -> str:
    """Return where jobs reach vipu-server.

    option: the value of `--host`. server: the host in `--server tcp:`; None: it is on this host.
    Raises InvalidRequest for an address that means another host on each node.
    """
    controller_hosts = elsewhere(slurm_conf)
    host = option or server or (controller_hosts and _controller(slurm_conf)[1]) or "localhost"
    if controller_hosts and _is_local(host):
        raise InvalidRequest(
            f"jobs on {controller_hosts} would look for vipu-server on their own host ({host})",
            operation=f"--host {host}"
            if option
            else f"--server tcp:{host}"
            if server
            else "no --host",
            would_work="--host with the name by which the nodes know vipu-server's host",
        )
    return host


def elsewhere(slurm_conf: Path) -> str:
    """Return a node that is on another host than slurmctld, or "" if there is none."""
    name, address = _controller(slurm_conf)
    local_names = {name, address, socket.gethostname(), socket.gethostname().partition(".")[0]}
    nodes = [node for line in lines(slurm_conf) for node in _addresses(line)]
    far = (node for node in nodes if node not in local_names and not _is_local(node))
    return next(far, "" if nodes else "the nodes")


def controllers(slurm_conf: Path) -> list[tuple[str, str]]:
    """Return the hosts of slurmctld, the primary first, each with the address by which others reach
    it.
    """
    hosts = []
    for line in lines(slurm_conf):
        key, _, entry = line.partition("=")
        if key.strip().lower() == "slurmctldhost":
            name, _, rest = entry.strip().partition("(")
            hosts.append((name, rest.rstrip(")") or name))
    return hosts


def _controller(slurm_conf: Path) -> tuple[str, str]:
    """Return the first of them, or two empty strings where slurm.conf names none."""
    return next(iter(controllers(slurm_conf)), ("", ""))


def _hosts(server: str) -> list[str]:
    return [word.rpartition(":")[0] or word for word in server.removeprefix("tcp:").split(",")]


def _is_local(host: str) -> bool:
    if host.lower() in ("localhost", "localhost.localdomain"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def without_munge(slurm_conf: Path) -> bool:
    """Return whether Slurm's own daemons know each other by a key (auth/slurm)."""
    return settings("\n".join(lines(slurm_conf))).get("authtype", "").lower() == "auth/slurm"


def munge_socket(slurm_conf: Path) -> str:
    """Return MUNGE's socket where AuthInfo names one, or ""."""
    authinfo = settings("\n".join(lines(slurm_conf))).get("authinfo", "")
    return next((word[7:] for word in authinfo.split(",") if word.startswith("socket=")), "")


def _addresses(line: str) -> list[str]:
    """Return the addresses of the nodes that a line defines, or none for other lines."""
    pairs = (word.partition("=") for word in line.split())
    words = {key.lower(): value for key, _, value in pairs}
    name = words.get("nodename", "")
    if not name or name.upper() == "DEFAULT":
        return []
    try:
        return list(expand(words.get("nodeaddr") or words.get("nodehostname") or name))
    except HostsError:
        return [name]
