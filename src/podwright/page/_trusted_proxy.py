"""A proxy of the site's in front of the page. It knows the caller and names it in a header.

The header counts only in requests of the configured peers. On this machine every account can
connect from any of its addresses, so there the header counts only beside a secret that the proxy
sends as well. In requests of others the header is ignored.
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

PROXY_SECRET_HEADER: Final = "x-podwright-proxy"  #: the header with the secret
USER: Final = "X-Remote-User"
_HEADER_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_LOOPBACK_NETWORKS: Final = {
    4: ipaddress.ip_network("127.0.0.0/8"),
    6: ipaddress.ip_network("::1/128"),
}
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SiteProxy:
    """A proxy that is trusted.

    peers: addresses and networks. header: the header with the user's name. secret: empty for none,
    else at least 16 characters. is_own: whether an address is one of this machine's.

    Raises InvalidRequest for an address that is malformed, and for peers on this machine without a
    secret.
    """

    def __init__(
        self,
        peers: Sequence[str],
        *,
        header: str = USER,
        secret: str = "",
        is_own: Callable[[str], bool] = is_here,
    ) -> None:
        if not _HEADER_PATTERN.fullmatch(header) or header.lower() in (
            "host",
            "origin",
            "cookie",
            PROXY_SECRET_HEADER,
        ):
            raise InvalidRequest(f"{header[:80]!r} cannot say who comes", would_work=USER)
        self.header = header.lower()
        self._peers = [_parse_network(peer) for peer in peers]
        self._is_own_name = is_own
        has_local_peer = any(
            peer.overlaps(_LOOPBACK_NETWORKS[peer.version])
            or (peer.num_addresses == 1 and is_own(str(peer.network_address)))
            for peer in self._peers
        )
        if has_local_peer and not secret:
            raise InvalidRequest(
                "every account of this machine can connect as the proxy does",
                operation="believe a proxy on this machine",
                would_work="--http-proxy-secret FILE, which the proxy sends as "
                f"{PROXY_SECRET_HEADER}",
            )
        if secret and len(secret) < 16:
            raise InvalidRequest(
                "the proxy's secret is too short",
                would_work="make one: openssl rand -hex 32 > FILE",
            )
        self._secret = secret.encode()

    def user(self, request: HttpRequest) -> str:
        """Return the user whom the proxy names; empty where the request is not from a proxy.

        Raises Unauthenticated for a header that is present twice.
        """
        if not self.comes_from_proxy(request):
            return ""
        user_names = [
            header_value for key, header_value in request.headers if key == self.header.encode()
        ]
        if len(user_names) > 1:
            raise Unauthenticated(
                f"the proxy says twice who comes ({self.header})",
                would_work="let the proxy take the header from what comes in",
            )
        return user_names[0].decode("utf-8", "replace").strip()[:100] if user_names else ""

    def comes_from_proxy(self, request: HttpRequest) -> bool:
        """Return whether the request comes from the proxy."""
        try:
            address = ipaddress.ip_address(request.address.partition("%")[0])
        except ValueError:
            return False
        mapped_address = getattr(address, "ipv4_mapped", None)
        address = mapped_address or address
        if not any(address in peer for peer in self._peers):
            return False
        if not self._secret:  # a network may contain an address of this machine
            return not self._is_own_name(str(address))
        return hmac.compare_digest(
            request.header(PROXY_SECRET_HEADER).encode("latin-1"), self._secret
        )

    def hides(self, request: HttpRequest) -> bool:
        """Return whether the way from browser to proxy is encrypted, as the proxy reports it."""
        return self.comes_from_proxy(request) and request.header("x-forwarded-proto") == "https"


def _parse_network(peer_text: str) -> _Network:
    try:
        return ipaddress.ip_network(peer_text)
    except ValueError:
        raise InvalidRequest(
            f"{peer_text[:80]!r} is neither an address nor a network",
            operation="--http-proxy",
            would_work="--http-proxy 10.0.0.5,10.1.0.0/24",
        ) from None
