"""The gate's certificates. Each handshake checks the files, so new ones need no restart."""

from __future__ import annotations

import logging
import os
import ssl
from typing import Any

import grpc

from podwright.errors import PodwrightError
from podwright.wire import read_certificates

_log = logging.getLogger("podwright.server")
_FILES = ("ca.pem", "key.pem", "cert.pem")


def server_credentials(certs_folder: str) -> Any:
    """Return the credentials of a gRPC port that identifies callers by their certificates.

    Raises wire.InvalidRequest for files that cannot be read.
    """
    renewed = _RenewedCertificates(certs_folder)
    return grpc.dynamic_ssl_server_credentials(
        renewed.first(), renewed, require_client_authentication=True
    )


class _RenewedCertificates:
    """Returns changed certificates at a handshake; None lets gRPC keep those that it has."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen = self._stamps()

    def first(self) -> Any:
        """Return the certificates in the folder. Raises wire.InvalidRequest."""
        ca, key, cert = read_certificates(self._folder)
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)

    def __call__(self) -> Any:
        seen = self._stamps()
        if seen == self._seen:
            return None
        try:
            self._check()
            certificates = self.first()
        except (PodwrightError, OSError, ValueError) as error:
            # Perhaps only some of the three files have been replaced yet: a later handshake tries
            # again.
            _log.warning("the certificates in %s cannot be used yet: %s", self._folder, error)
            return None
        if seen != self._stamps():
            return None
        self._seen = seen
        return certificates

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps = []
        for name in _FILES:
            try:
                status = os.stat(os.path.join(self._folder, name))
            except OSError:
                continue
            stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return stamps

    def _check(self) -> None:
        """Raise ssl.SSLError, which is an OSError, when key and certificate do not match."""
        key, cert = (os.path.join(self._folder, name) for name in _FILES[1:])
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
