"""Which addresses only this machine reaches."""

from __future__ import annotations


def is_loopback(host: str) -> bool:
    """Does only this machine reach that address? Names other than `localhost` may not."""
    import ipaddress  # few commands ask

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
