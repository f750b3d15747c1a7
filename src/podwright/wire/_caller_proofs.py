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
_USER_URI_PREFIX, _OWN_URI_PREFIX = "podwright:user:", "podwright:"


def user_uri(user_name: str, user_created_at: float, certificate_id: str = "") -> str:
    """Return the URI of a user's certificate.

    user_created_at: when the user was created, so that the certificate is not valid for another
    user who is made later under the same name. certificate_id: of this certificate, by which it can
    be revoked.
    """
    return f"{_USER_URI_PREFIX}{user_name}:{user_created_at:.6f}" + (
        f":{certificate_id}" if certificate_id else ""
    )


def certificate_number(certificate_uri: str) -> str:
    """Return the number in a certificate's URI, or empty."""
    parts = certificate_uri.removeprefix(_USER_URI_PREFIX).split(":")
    return parts[2] if certificate_uri.startswith(_USER_URI_PREFIX) and len(parts) == 3 else ""


def agent_name(machine_name: str, certificate_id: str) -> str:
    """Return the name that only one certificate of a machine's agent has.

    gRPC's client can demand a name but not a number, so the number is part of the name.
    certificate_id: empty: the name that all certificates of the agent have.
    """
    return f"{certificate_id}.{machine_name}" if certificate_id else machine_name


def user_of(certificate_uris: list[str], common_name: str) -> tuple[str, str]:
    """Return the owner of a certificate: the name, and the whole URI. Both are empty for no user.

    certificate_uris: all alternative names. A certificate that a site made itself may have the URI
    `podwright:user:NAME`, or the name as its common name; then the URI has no time, or there is
    none.
    """
    for certificate_uri in certificate_uris:
        if certificate_uri.startswith(_USER_URI_PREFIX):
            return certificate_uri.removeprefix(_USER_URI_PREFIX).partition(":")[0], certificate_uri
    if any(uri.startswith(_OWN_URI_PREFIX) for uri in certificate_uris) or " " in common_name:
        return "", ""
    return common_name, ""


def read_certificates(certs_folder: str) -> tuple[bytes, bytes, bytes]:
    """Return the content of ca.pem, key.pem and cert.pem in a folder.

    Raises wire.InvalidRequest.
    """
    pem_contents = []
    for file_name in ("ca.pem", "key.pem", "cert.pem"):
        pem_path = os.path.join(certs_folder, file_name)
        try:
            with open(pem_path, "rb") as pem_file:
                pem_contents.append(pem_file.read())
        except OSError as error:
            raise InvalidRequest(
                f"cannot read {pem_path}: {(error.strerror or '').lower()}",
                would_work="vipu-server --tls-init makes the server's and a client's, vipu-admin "
                "create certificate those of users and agents",
            ) from None
    authority, private_key, certificate = pem_contents
    return authority, private_key, certificate


def munge_payload(method_path: str, request_body: bytes) -> bytes:
    """Return the payload of a MUNGE credential for a call. method_path: of the gRPC method."""
    import hashlib

    return f"{method_path} {hashlib.sha256(request_body).hexdigest()}".encode()
