"""Which addresses only this machine reaches."""

from __future__ import annotations


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches that address.

    A name other than `localhost` may not be one.
    """
    import ipaddress  # few commands ask

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
