"""The hosts to which the devices of a pool are attached. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.errors import InvalidRequest
from podwright.fabric import Attachment, Cluster
from podwright.wire import PartitionSpec


def hosts_of(
    spec: PartitionSpec, launch_hosts: Sequence[str], cluster: Cluster, action: str
) -> tuple[str, ...]:
    """Return the hosts that a request names for devices of this cluster.

    launch_hosts: where the instances of the launch will run that requests it. It counts if the
    request itself names no host. The result is empty for a cluster that is not a pool.

    Raises InvalidRequest for hosts where devices have a home, and for a pool without hosts, since
    the server does not choose the host.
    """
    if cluster.family.attachment is not Attachment.POOL:
        if spec.hosts:
            raise InvalidRequest(
                f"the devices of cluster {cluster.name} have a home, and are not attached to hosts",
                operation=action,
                would_work="leave out the hosts, or name a cluster that is a pool",
            )
        return ()
    hosts, device_count = tuple(spec.hosts or launch_hosts), spec.size or len(spec.devices)
    if not hosts:
        raise InvalidRequest(
            f"cluster {cluster.name} is a pool, and no host is named that its devices are for",
            operation=action,
            would_work="--host HOST, or a launch by poprun, which names its own hosts",
        )
    if len(set(map(short_name, hosts))) < len(hosts):
        raise InvalidRequest(
            "a host is named twice", operation=action, would_work="name each host once"
        )
    if device_count % len(hosts):
        raise InvalidRequest(
            f"{device_count} devices do not divide evenly over {len(hosts)} hosts",
            operation=action,
            would_work=f"use a multiple of {len(hosts)} devices",
        )
    if spec.num_gcds % len(hosts):
        raise InvalidRequest(
            f"a GCD lies at one host: {spec.num_gcds} do not divide over {len(hosts)} hosts",
            operation=action,
            would_work=f"use a multiple of {len(hosts)} GCDs, or leave the count open",
        )
    return hosts


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
