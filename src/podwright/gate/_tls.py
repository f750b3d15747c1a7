"""The gate's certificates, looked at when somebody connects: renewed ones need no restart."""

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


def server_credentials(folder: str) -> Any:
    """For a port of gRPC's that believes callers by their certificates.

    Raises wire.InvalidRequest for files that cannot be read.
    """
    renewed = _Renewed(folder)
    return grpc.dynamic_ssl_server_credentials(
        renewed.first(), renewed, require_client_authentication=True
    )


class _Renewed:
    """Says at each handshake whether there are others now: gRPC keeps those it has for None."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen = self._look()

    def first(self) -> Any:
        """Those that are there. Raises wire.InvalidRequest."""
        ca, key, cert = read_certificates(self._folder)
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)

    def __call__(self) -> Any:
        seen = self._look()
        if seen == self._seen:
            return None
        try:
            self._check()
            found = self.first()
        except (PodwrightError, OSError, ValueError) as error:
            # One file of three may be new: at the next handshake all are.
            _log.warning("the certificates in %s cannot be used yet: %s", self._folder, error)
            return None
        if seen != self._look():
            return None
        self._seen = seen
        return found

    def _look(self) -> list[tuple[int, int, int]]:
        found = []
        for name in _FILES:
            try:
                status = os.stat(os.path.join(self._folder, name))
            except OSError:
                continue
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return found

    def _check(self) -> None:
        """Raises ssl.SSLError, which is an OSError, where key and certificate do not fit."""
        key, cert = (os.path.join(self._folder, name) for name in _FILES[1:])
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
