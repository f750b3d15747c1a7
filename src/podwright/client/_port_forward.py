"""A port of this user's own that leads to a secure server, for programs of V-IPU's.

Those programs speak gRPC without TLS and present no key, since the credentials that V-IPU's servers
expect are not public. This port passes their bytes on through TLS, with the user's certificate, so
that the server knows who calls. The kernel says which user has made a connection to the port, and
connections of other users of the host are closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from podwright.client._named_server import Address
from podwright.errors import InvalidRequest
from podwright.hosts import tcp_owner
from podwright.wire import SOCKET_VARIABLE, read_certificates

_LOOPBACK = "127.0.0.1"
_CONNECT_TIMEOUT_S = 5.0  #: seconds for a connection to one address
_MAX_CONNECTIONS = 256  #: the most connections at once


class PortForwarder:
    """A forwarding port. addresses: of the server, tried in this order. certs: as for Credentials.

    report_failure: called with a line for each connection that was refused or failed. Raises
    wire.InvalidRequest for certificates that cannot be read.
    """

    def __init__(
        self, addresses: Sequence[Address], certs: str, report_failure: Callable[[str], None]
    ) -> None:
        read_certificates(certs)  # it raises an error that says what is missing
        folder = Path(certs)
        self._addresses, self._report = addresses, report_failure
        self._tls = ssl.create_default_context(cafile=folder / "ca.pem")
        self._tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self._tls.set_alpn_protocols(["h2"])
        self._server: asyncio.Server | None = None
        self._visits: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Open a port on loopback. Return its number."""
        self._server = await asyncio.start_server(self._serve_connection, _LOOPBACK, 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and its connections."""
        if self._server is not None:
            self._server.close()
        for task in self._visits:
            task.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    async def _serve_connection(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._visits.add(task)
        server_writer: asyncio.StreamWriter | None = None
        try:
            owner_uid = tcp_owner(client_writer.get_extra_info("socket"))
            if owner_uid != os.geteuid():
                if owner_uid is not None:
                    self._report(
                        f"a program of user {owner_uid} tried this port; it was not let through"
                    )
                return
            if len(self._visits) > _MAX_CONNECTIONS:
                self._report(f"more than {_MAX_CONNECTIONS} connections at once")
                return
            server_reader, server_writer = await self._connect()
            await asyncio.gather(
                _pass(client_reader, server_writer), _pass(server_reader, client_writer)
            )
        except (OSError, asyncio.CancelledError) as error:
            if server_writer is None and isinstance(error, OSError):
                self._report(f"the server cannot be reached: {error}")
        finally:
            self._visits.discard(task)
            for stream in (client_writer, server_writer):
                if stream is not None:
                    stream.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        *addresses, address = self._addresses
        for host, port in addresses:
            try:
                return await self._connect_to(host, port)
            except OSError:  # try the next address
                continue
        return await self._connect_to(*address)

    async def _connect_to(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await asyncio.open_connection(host, port, ssl=self._tls)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()  # HTTP/2 has no half-open connections


async def run_through(
    forwarder: PortForwarder, command: Sequence[str], environ: Mapping[str, str]
) -> int:
    """Run a command that finds the server by the forwarder's port. Returns its exit code, or 128+N
    after signal N. Raises InvalidRequest for a command that cannot be run.
    """
    port = str(await forwarder.start())
    # These settings of our own would bypass the port, or speak TLS to it.
    removed_variables = (SOCKET_VARIABLE, "VIPU_CLI_TLS_CERTS")
    variables = {
        variable: value for variable, value in environ.items() if variable not in removed_variables
    }
    for prefix in ("VIPU_CLI_API", "IPUOF_VIPU_API"):
        variables |= {f"{prefix}_HOST": "127.0.0.1", f"{prefix}_PORT": port}
    try:
        try:
            process = await asyncio.create_subprocess_exec(*command, env=variables)
        except OSError as error:
            raise InvalidRequest(
                f"cannot run {command[0]}: {(error.strerror or str(error)).lower()}"
            ) from None
        loop = asyncio.get_running_loop()
        # The terminal sends Ctrl-C to the command too. This process ends as the command does.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        loop.add_signal_handler(signal.SIGTERM, _terminate_child, process)
        exit_code = await process.wait()
    finally:
        await forwarder.stop()
    return exit_code if exit_code >= 0 else 128 - exit_code


def _terminate_child(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
