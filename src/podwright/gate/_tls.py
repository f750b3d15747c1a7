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
_TLS_FILE_NAMES = ("ca.pem", "key.pem", "cert.pem")


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

    def __init__(self, certs_folder: str) -> None:
        self._folder = certs_folder
        self._seen = self._file_stamps()

    def first(self) -> Any:
        """Return the certificates in the folder. Raises wire.InvalidRequest."""
        authority_certificate, key, certificate = read_certificates(self._folder)
        return grpc.ssl_server_certificate_configuration(
            [(key, certificate)], root_certificates=authority_certificate
        )

    def __call__(self) -> Any:
        stamps = self._file_stamps()
        if stamps == self._seen:
            return None
        try:
            self._check_key_pair()
            certificates = self.first()
        except (PodwrightError, OSError, ValueError) as error:
            # Perhaps only some of the three files have been replaced yet: a later handshake tries
            # again.
            _log.warning("the certificates in %s cannot be used yet: %s", self._folder, error)
            return None
        if stamps != self._file_stamps():
            return None
        self._seen = stamps
        return certificates

    def _file_stamps(self) -> list[tuple[int, int, int]]:
        file_stamps = []
        for name in _TLS_FILE_NAMES:
            try:
                status = os.stat(os.path.join(self._folder, name))
            except OSError:
                continue
            file_stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return file_stamps

    def _check_key_pair(self) -> None:
        """Raise ssl.SSLError, which is an OSError, when key and certificate do not match."""
        key_path, cert_path = (os.path.join(self._folder, name) for name in _TLS_FILE_NAMES[1:])
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert_path, key_path)
