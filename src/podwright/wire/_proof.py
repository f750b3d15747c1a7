"""How callers on TCP prove who they are: the texts that both sides must write alike.

A certificate of the site's authority names its owner by a URI among its alternative names. A MUNGE
credential carries a digest of the call that it was made for, so that it is valid for no other.
"""

from __future__ import annotations

import os
from typing import Final

from podwright.errors import InvalidRequest

#: The URI of a server's certificate, and of any other that may give orders to agents.
SERVER_URI: Final = "podwright:server"
_USER, _OURS = "podwright:user:", "podwright:"


def user_uri(name: str, created_at: float, number: str = "") -> str:
    """Return the URI of a user's certificate.

    created_at: when the user was created, so that the certificate is not valid for another user who
    is made later under the same name. number: of this certificate, by which it can be revoked.
    """
    return f"{_USER}{name}:{created_at:.6f}" + (f":{number}" if number else "")


def certificate_number(uri: str) -> str:
    """Return the number in a certificate's URI, or empty."""
    parts = uri.removeprefix(_USER).split(":")
    return parts[2] if uri.startswith(_USER) and len(parts) == 3 else ""


def agent_name(machine: str, number: str) -> str:
    """Return the name that only one certificate of a machine's agent has.

    gRPC's client can demand a name but not a number, so the number is part of the name. number:
    empty: the name that all certificates of the agent have.
    """
    return f"{number}.{machine}" if number else machine


def user_of(uris: list[str], common_name: str) -> tuple[str, str]:
    """Return the owner of a certificate: the name, and the whole URI. Both are empty for no user.

    uris: all alternative names. A certificate that a site made itself may have the URI
    `podwright:user:NAME`, or the name as its common name; then the URI has no time, or there is
    none.
    """
    for uri in uris:
        if uri.startswith(_USER):
            return uri.removeprefix(_USER).partition(":")[0], uri
    if any(uri.startswith(_OURS) for uri in uris) or " " in common_name:
        return "", ""
    return common_name, ""


def read_certificates(folder: str) -> tuple[bytes, bytes, bytes]:
    """Return the content of ca.pem, key.pem and cert.pem in a folder.

    Raises wire.InvalidRequest.
    """
    contents = []
    for name in ("ca.pem", "key.pem", "cert.pem"):
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                contents.append(file.read())
        except OSError as error:
            raise InvalidRequest(
                f"cannot read {path}: {(error.strerror or '').lower()}",
                would_work="vipu-server --tls-init makes the server's and a client's, vipu-admin "
                "create certificate those of users and agents",
            ) from None
    ca, key, cert = contents
    return ca, key, cert


def munge_payload(path: str, body: bytes) -> bytes:
    """Return the payload of a MUNGE credential for a call. path: of the gRPC method."""
    import hashlib

    return f"{path} {hashlib.sha256(body).hexdigest()}".encode()
