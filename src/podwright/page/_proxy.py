"""A proxy of the site's in front of the page, which knows who comes and says so in a header.

The header counts from the peers that were configured alone, and on this machine, where every
account can connect from any of its addresses, only beside a secret that the proxy sends as well.
From anybody else it is as if it were not there.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Final

from podwright.errors import InvalidRequest, Unauthenticated
from podwright.hosts import is_here
from podwright.http import HttpRequest

SECRET: Final = "x-podwright-proxy"  #: the header with the secret
USER: Final = "X-Remote-User"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_LOOPBACK: Final = {
    4: ipaddress.ip_network("127.0.0.0/8"),
    6: ipaddress.ip_network("::1/128"),
}
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SiteProxy:
    """peers: addresses and networks. header: which says the user's name. secret: empty for none;
    at least 16 characters. here: whether an address is one of this machine's.

    Raises InvalidRequest for what is no network, and for peers on this machine without a secret.
    """

    def __init__(
        self,
        peers: Sequence[str],
        *,
        header: str = USER,
        secret: str = "",
        here: Callable[[str], bool] = is_here,
    ) -> None:
        if not _HEADER.fullmatch(header) or header.lower() in ("host", "origin", "cookie", SECRET):
            raise InvalidRequest(f"{header[:80]!r} cannot say who comes", would_work=USER)
        self.header = header.lower()
        self._peers = [_network(peer) for peer in peers]
        self._here = here
        local = any(
            peer.overlaps(_LOOPBACK[peer.version])
            or (peer.num_addresses == 1 and here(str(peer.network_address)))
            for peer in self._peers
        )
        if local and not secret:
            raise InvalidRequest(
                "every account of this machine can connect as the proxy does",
                asked="believe a proxy on this machine",
                would_work=f"--http-proxy-secret FILE, which the proxy sends as {SECRET}",
            )
        if secret and len(secret) < 16:
            raise InvalidRequest(
                "the proxy's secret is too short", would_work="openssl rand -hex 32 > FILE"
            )
        self._secret = secret.encode()

    def user(self, request: HttpRequest) -> str:
        """Who the proxy says comes; empty where no proxy does. Raises Unauthenticated for a header
        that is there twice."""
        if not self.speaks(request):
            return ""
        names = [text for key, text in request.headers if key == self.header.encode()]
        if len(names) > 1:
            raise Unauthenticated(
                f"the proxy says twice who comes ({self.header})",
                would_work="let the proxy take the header from what comes in",
            )
        return names[0].decode("utf-8", "replace").strip()[:100] if names else ""

    def speaks(self, request: HttpRequest) -> bool:
        """Does the request come from the proxy?"""
        try:
            address = ipaddress.ip_address(request.address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        if not any(address in peer for peer in self._peers):
            return False
        if not self._secret:  # a network may hold an address of our own
            return not self._here(str(address))
        return hmac.compare_digest(request.header(SECRET).encode("latin-1"), self._secret)

    def hides(self, request: HttpRequest) -> bool:
        """Does nobody between the browser and the proxy read along? As far as the proxy says so."""
        return self.speaks(request) and request.header("x-forwarded-proto") == "https"


def _network(peer: str) -> _Network:
    try:
        return ipaddress.ip_network(peer)
    except ValueError:
        raise InvalidRequest(
            f"{peer[:80]!r} is no address and no network",
            asked="--http-proxy",
            would_work="--http-proxy 10.0.0.5,10.1.0.0/24",
        ) from None
