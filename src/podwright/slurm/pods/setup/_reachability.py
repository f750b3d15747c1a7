"""Where a site's nodes are, by its slurm.conf: whether steps there reach the service beside
slurmctld by its Unix socket, or need an address. Reads files, changes none."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Final

from podwright.errors import InvalidRequest
from podwright.hosts import HostsError, expand
from podwright.slurm.site.edit import settings
from podwright.slurm.site.files import lines

#: Where `slurm serve` listens for steps on other hosts, if nobody says otherwise.
PORT: Final = 8092


def far_door(slurm_conf: Path) -> str:
    """HOST:PORT where steps on other hosts can reach the service, as they name slurmctld's host;
    of several slurmctld each one's, with commas. Empty where all nodes are on that very host."""
    there = controllers(slurm_conf)
    if not there or (len(there) == 1 and not elsewhere(slurm_conf)):
        return ""
    return ",".join(
        f"[{address}]:{PORT}" if ":" in address else f"{address}:{PORT}" for _, address in there
    )


def check_server(slurm_conf: Path, server: str) -> None:
    """Raises InvalidRequest where services on several hosts would each look for vipu-server on
    their own. server: of `--server`."""
    hosts = [name for name, _ in controllers(slurm_conf)]
    local = not server.startswith("tcp:") or any(map(_is_local, _hosts(server)))
    if len(hosts) > 1 and local:
        raise InvalidRequest(
            f"slurm.conf has slurmctld on {' and '.join(hosts)}, and a service beside each: they "
            "would look for vipu-server on their own host",
            asked=f"--server {server}" if server else "no --server",
            would_work="--server tcp:HOST:PORT[,HOST:PORT], as all of them know vipu-server",
        )


def server_host(slurm_conf: Path, said: str | None, server: str | None) -> str:
    """Where jobs reach vipu-server. said: `--host`. server: of `--server tcp:`; None: it is on this
    host. Raises InvalidRequest for an address that means another host on each node."""
    there = elsewhere(slurm_conf)
    host = said or server or (there and _controller(slurm_conf)[1]) or "localhost"
    if there and _is_local(host):
        raise InvalidRequest(
            f"jobs on {there} would look for vipu-server on their own host ({host})",
            asked=f"--host {host}" if said else f"--server tcp:{host}" if server else "no --host",
            would_work="--host with the name by which the nodes know vipu-server's host",
        )
    return host


def elsewhere(slurm_conf: Path) -> str:
    """A node that is on another host than slurmctld; empty: there is none."""
    name, address = _controller(slurm_conf)
    here = {name, address, socket.gethostname(), socket.gethostname().partition(".")[0]}
    nodes = [node for line in lines(slurm_conf) for node in _addresses(line)]
    far = (node for node in nodes if node not in here and not _is_local(node))
    return next(far, "" if nodes else "the nodes")


def controllers(slurm_conf: Path) -> list[tuple[str, str]]:
    """The hosts of slurmctld, the primary first, and how others reach each."""
    found = []
    for line in lines(slurm_conf):
        key, _, said = line.partition("=")
        if key.strip().lower() == "slurmctldhost":
            name, _, rest = said.strip().partition("(")
            found.append((name, rest.rstrip(")") or name))
    return found


def _controller(slurm_conf: Path) -> tuple[str, str]:
    """The first of them; empty where slurm.conf names none."""
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
    """Do Slurm's own daemons know each other by a key (auth/slurm)?"""
    return settings("\n".join(lines(slurm_conf))).get("authtype", "").lower() == "auth/slurm"


def munge_socket(slurm_conf: Path) -> str:
    """MUNGE's socket, where AuthInfo names one."""
    said = settings("\n".join(lines(slurm_conf))).get("authinfo", "")
    return next((word[7:] for word in said.split(",") if word.startswith("socket=")), "")


def _addresses(line: str) -> list[str]:
    """Where the nodes of a line are; none for other lines."""
    pairs = (word.partition("=") for word in line.split())
    words = {key.lower(): value for key, _, value in pairs}
    name = words.get("nodename", "")
    if not name or name.upper() == "DEFAULT":
        return []
    try:
        return list(expand(words.get("nodeaddr") or words.get("nodehostname") or name))
    except HostsError:
        return [name]
