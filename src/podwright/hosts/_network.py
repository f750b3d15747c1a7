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
        route_rows = [line.split() for line in file.readlines()[1:]]
    with open(f"{root}proc/net/fib_trie", encoding="ascii") as file:
        own_addresses = _local_trie_addresses(file.read())
    gateway_interfaces = {row[0] for row in route_rows if row[1] == row[7] == "00000000"}
    subnet_list = []
    for route_row in route_rows:
        if route_row[2] != "00000000" or route_row[7] == "00000000" or route_row[0] == "lo":
            continue
        network = ipaddress.IPv4Network(
            (_address_from_hex(route_row[1]), _address_from_hex(route_row[7]))
        )
        address = next(
            (
                candidate
                for candidate in own_addresses
                if ipaddress.IPv4Address(candidate) in network
            ),
            "",
        )
        if address:
            subnet_list.append(
                Subnet(str(network), route_row[0], address, route_row[0] in gateway_interfaces)
            )
    return (*sorted(subnet_list, key=lambda subnet: not subnet.default), *_ipv6_subnets(root))


def _ipv6_subnets(root: str) -> list[Subnet]:
    """Return the IPv6 subnets, one for each address that is not link-local."""
    import ipaddress

    try:
        with open(f"{root}proc/net/if_inet6", encoding="ascii") as file:
            address_rows = [line.split() for line in file]
    except OSError:
        return []  # a kernel without IPv6
    subnet_list = []
    for address_hex, _, prefix_hex, scope, _, interface in address_rows:
        prefix_length = int(prefix_hex, 16)
        if scope != "00" or interface == "lo" or prefix_length == 128:
            continue
        address = ipaddress.IPv6Address(int(address_hex, 16))
        network = ipaddress.IPv6Network((address, prefix_length), strict=False)
        subnet_list.append(Subnet(str(network), interface, str(address)))
    return sorted(subnet_list, key=lambda subnet: (subnet.interface, subnet.cidr))


def common_subnet(subnets_by_host: Sequence[Sequence[Subnet]]) -> str:
    """Return the first subnet of the first host that all others have as well, or empty."""
    for subnet in subnets_by_host[0] if subnets_by_host else ():
        if all(
            any(host_subnet.cidr == subnet.cidr for host_subnet in host_subnets)
            for host_subnets in subnets_by_host[1:]
        ):
            return subnet.cidr
    return ""


def address_in(cidr: str, subnets: Sequence[Subnet]) -> str:
    """Return a host's address in a subnet; empty if it has none."""
    import ipaddress

    network = ipaddress.ip_network(cidr)
    return next(
        (subnet.address for subnet in subnets if ipaddress.ip_address(subnet.address) in network),
        "",
    )


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
        with socket.socket(family) as probe_socket:
            probe_socket.bind((address, 0))
    except OSError:
        return False
    return True


def _address_from_hex(address_hex: str) -> str:
    """Return an address from the kernel's notation, which uses this machine's byte order."""
    import socket
    import sys

    return socket.inet_ntoa(int(address_hex, 16).to_bytes(4, sys.byteorder))


def _local_trie_addresses(trie_text: str) -> list[str]:
    """Return the addresses of this host: the leaves of the kernel's tree that are marked local."""
    addresses: list[str] = []
    address = ""
    for line in trie_text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and address not in addresses:
            addresses.append(address)
    return addresses
