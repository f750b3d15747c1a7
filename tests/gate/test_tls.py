"""Renewed certificates are shown to whoever connects next, without a restart."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podwright.server import ListenOptions, Server
from tests.certificates import folder_of
from tests.server.fakes import FakeController, as_controller


class Renewing:
    """A server with TLS, and the folder of its certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = Server(as_controller(FakeController()), ListenOptions(None, certs=folder))

    async def shown(self) -> bytes:
        """The certificate that somebody who connects now is shown."""
        return await asyncio.to_thread(self._connect)

    def _connect(self) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # bob's is not a server's
        context.load_cert_chain(folder_of("client") / "cert.pem", folder_of("client") / "key.pem")
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", self.server.port), 120) as plain,
            context.wrap_socket(plain) as line,
        ):
            found = line.getpeercert(binary_form=True)
            assert found is not None
            return found

    def put(self, side: str, *names: str) -> None:
        """Files of another certificate in the place of ours."""
        for name in names:
            shutil.copy(folder_of(side) / name, self.folder / name)


def der(side: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder_of(side) / "cert.pem").read_text())


@pytest.fixture
async def renewing() -> AsyncIterator[Renewing]:
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as folder:
        shutil.copytree(folder_of("server"), folder, dirs_exist_ok=True)
        made = Renewing(Path(folder))
        await made.server.start()
        yield made
        await made.server.stop(5)


async def test_renewed_certificates_are_shown_without_a_restart(renewing: Renewing) -> None:
    assert await renewing.shown() == der("server")
    renewing.put("bob", "cert.pem", "key.pem")
    assert await renewing.shown() == der("bob")


async def test_a_certificate_is_never_shown_without_its_key(
    renewing: Renewing, caplog: pytest.LogCaptureFixture
) -> None:
    assert await renewing.shown() == der("server")
    renewing.put("bob", "cert.pem")
    assert await renewing.shown() == der("server")
    assert "cannot be used yet" in caplog.text
    (renewing.folder / "key.pem").unlink()
    assert await renewing.shown() == der("server")
    renewing.put("bob", "key.pem")
    assert await renewing.shown() == der("bob")
