"""What callers on TCP prove themselves by: the words that both sides must write alike.

A certificate of the site's authority says by a URI among its names whose it is. A MUNGE
credential carries the call that it was made for, so that it serves no other.
"""

from __future__ import annotations

import os
from typing import Final

from podwright.errors import InvalidRequest

#: The URI of a server's certificate, and of any that may give orders to agents.
SERVER_URI: Final = "podwright:server"
_USER, _OURS = "podwright:user:", "podwright:"


def user_uri(name: str, created_at: float, number: str = "") -> str:
    """The URI of a user's certificate. created_at: of the user, so that it is worth nothing for
    somebody who is made later under the same name. number: of this one certificate, by which it
    can be revoked."""
    return f"{_USER}{name}:{created_at:.6f}" + (f":{number}" if number else "")


def certificate_number(uri: str) -> str:
    """The number in a certificate's URI, or empty."""
    parts = uri.removeprefix(_USER).split(":")
    return parts[2] if uri.startswith(_USER) and len(parts) == 3 else ""


def agent_name(machine: str, number: str) -> str:
    """The name that one certificate of a machine's agent has, and no other; gRPC's client can ask
    for a name, and not for a number. number: empty: the one that all of them have."""
    return f"{number}.{machine}" if number else machine


def user_of(uris: list[str], common_name: str) -> tuple[str, str]:
    """Whose a certificate is: the name, and its whole URI; both empty for nobody's.

    uris: all alternative names. A certificate that a site made itself may say `podwright:user:NAME`
    or have the name as its common name; then there is no URI, or one without a time.
    """
    for uri in uris:
        if uri.startswith(_USER):
            return uri.removeprefix(_USER).partition(":")[0], uri
    if any(uri.startswith(_OURS) for uri in uris) or " " in common_name:
        return "", ""
    return common_name, ""


def read_certificates(folder: str) -> tuple[bytes, bytes, bytes]:
    """ca.pem, key.pem and cert.pem of a folder. Raises wire.InvalidRequest."""
    found = []
    for name in ("ca.pem", "key.pem", "cert.pem"):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                found.append(file.read())
        except OSError as error:
            raise InvalidRequest(
                f"cannot read {path}: {(error.strerror or '').lower()}",
                would_work="vipu-server --tls-init makes the server's and a client's, vipu-admin "
                "create certificate those of users and agents",
            ) from None
    ca, key, cert = found
    return ca, key, cert


def munge_payload(path: str, body: bytes) -> bytes:
    """What a MUNGE credential carries for a call. path: the gRPC method's."""
    import hashlib

    return f"{path} {hashlib.sha256(body).hexdigest()}".encode()
