"""The names of the hosts to which the devices of a pool are attached. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import InvalidRequest


def known_hosts(
    hosts: Sequence[str], fabric_hosts: Sequence[str], cluster: str, action: str
) -> tuple[str, ...]:
    """Return these hosts by the names that the fabric has for them.

    Raises InvalidRequest for a host to which the fabric attaches nothing.
    """
    fabric_names = {short_name(fabric_host): fabric_host for fabric_host in fabric_hosts}
    if missing_hosts := [host for host in hosts if short_name(host) not in fabric_names]:
        raise InvalidRequest(
            f"nothing attaches devices of cluster {cluster} to host {missing_hosts[0][:80]}",
            operation=action,
            would_work=f"choose one of {', '.join(fabric_hosts)}"
            if fabric_hosts
            else "give the cluster a fabric whose inventory names hosts, under [hosts]",
        )
    return tuple(fabric_names[short_name(host)] for host in hosts)


def short_name(host: str) -> str:
    """Return a host's name up to its first dot; an address unchanged."""
    is_address = ":" in host or host.replace(".", "").isdecimal()
    return host if is_address else host.split(".")[0]
