"""The networks of this host, from /proc: its addresses, its subnets, and its default route.

Programs on several hosts talk over one subnet that all of them have. It is one of IPv4 if possible,
since Open MPI selects interfaces by IPv4 subnets only, else one of IPv6. Link-local addresses do
not count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple


class Subnet(NamedTuple):
    """A subnet of this host. default: the default route leads through it."""

    cidr: str
    interface: str
    address: str
    default: bool = False


def subnets(root: str = "/") -> tuple[Subnet, ...]:
    """Return this host's subnets: IPv4, the default gateway's first, then IPv6; no loopback."""
    import ipaddress

    with open(f"{root}proc/net/route", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    with open(f"{root}proc/net/fib_trie", encoding="ascii") as file:
        own = _local(file.read())
    gateways = {row[0] for row in rows if row[1] == row[7] == "00000000"}
    networks = []
    for row in rows:
        if row[2] != "00000000" or row[7] == "00000000" or row[0] == "lo":
            continue
        network = ipaddress.IPv4Network((_address(row[1]), _address(row[7])))
        address = next((a for a in own if ipaddress.IPv4Address(a) in network), "")
        if address:
            networks.append(Subnet(str(network), row[0], address, row[0] in gateways))
    return (*sorted(networks, key=lambda subnet: not subnet.default), *_six(root))


def _six(root: str) -> list[Subnet]:
    """Return the IPv6 subnets, one for each address that is not link-local."""
    import ipaddress

    try:
        with open(f"{root}proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []  # a kernel without IPv6
    networks = []
    for word, _, length, scope, _, interface in rows:
        size = int(length, 16)
        if scope != "00" or interface == "lo" or size == 128:
            continue
        address = ipaddress.IPv6Address(int(word, 16))
        network = ipaddress.IPv6Network((address, size), strict=False)
        networks.append(Subnet(str(network), interface, str(address)))
    return sorted(networks, key=lambda subnet: (subnet.interface, subnet.cidr))


def common_subnet(hosts: Sequence[Sequence[Subnet]]) -> str:
    """Return the first subnet of the first host that all others have as well, or empty."""
    for subnet in hosts[0] if hosts else ():
        if all(any(other.cidr == subnet.cidr for other in host) for host in hosts[1:]):
            return subnet.cidr
    return ""


def address_in(cidr: str, subnets: Sequence[Subnet]) -> str:
    """Return a host's address in a subnet; empty if it has none."""
    import ipaddress

    network = ipaddress.ip_network(cidr)
    return next((s.address for s in subnets if ipaddress.ip_address(s.address) in network), "")


def is_here(host: str) -> bool:
    """Return whether a name or an address means this host."""
    name = os.uname().nodename
    if host in ("localhost", name, name.split(".")[0]):
        return True
    import socket

    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return any(_can_bind(str(address)) for address in addresses)


def _can_bind(address: str) -> bool:
    """Return whether an address belongs to this host: no other address can be bound."""
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _address(word: str) -> str:
    """Return an address from the kernel's notation, which uses this machine's byte order."""
    import socket
    import sys

    return socket.inet_ntoa(int(word, 16).to_bytes(4, sys.byteorder))


def _local(trie: str) -> list[str]:
    """Return the addresses of this host: the leaves of the kernel's tree that are marked local."""
    addresses: list[str] = []
    leaf = ""
    for line in trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            leaf = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and leaf not in addresses:
            addresses.append(leaf)
    return addresses
