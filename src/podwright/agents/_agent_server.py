"""The gRPC service of `vipu-agent`, for one machine. No other module here imports grpc at its
top.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from podwright.agents._driver_interface import Driver, OwnedDriver
from podwright.agents._protocol_versions import OLDEST_PEER, PROTOCOL_VERSION
from podwright.agents._shared_key_auth import AUTH_METADATA_KEY, PROOF_METADATA_KEY, Secret
from podwright.errors import Internal, InvalidRequest, PodwrightError, Unauthenticated, Unavailable
from podwright.wire import SERVER_URI, Empty, Value, read_certificates
from podwright.wire.agent import (
    AGENT_METHODS,
    AGENT_SERVICE,
    Configured,
    ConfigureRequest,
    DescribeRequest,
    DevicesRequest,
    FenceRequest,
    MachineState,
)
from podwright.wire.messages import decode, encode, error_metadata

_log = logging.getLogger("podwright.agent")
_SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 1024 * 1024),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
)


class Agent:
    """Serves the driver of one machine.

    secret: the key that callers must prove to know. certs_folder: the folder of the machine's TLS
    certificates; with it, callers must show the server's certificate of the same authority, and a
    user's certificate is refused.

    Raises wire.InvalidRequest when both are missing, because anybody who reaches such an agent
    could give it orders.
    """

    def __init__(
        self,
        driver: Driver,
        machine: str,
        *,
        secret: Secret | None = None,
        certs_folder: Path | None = None,
    ) -> None:
        if secret is None and certs_folder is None:
            raise InvalidRequest(
                "an agent without a key or certificates would take orders from anybody",
                operation=f"serve machine {machine}",
                would_work="--agent-key FILE, or --tls-certs DIR",
            )
        self._machine = machine
        self._driver = driver
        self._secret = secret
        self._certs = certs_folder
        self._one_at_a_time = asyncio.Lock()
        self._server: Any = None
        #: The number of calls by method and result: `OK`, or the code of a refusal.
        self.calls: Counter[tuple[str, str]] = Counter()

    async def start(self, host: str, port: int) -> int:
        """Listen on this address and return the port. Port 0 takes a free one.

        Raises wire.Unavailable when the address cannot be bound.
        """
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        server.add_generic_rpc_handlers((_HandlerTable(self),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certs is None:
                bound_port = int(server.add_insecure_port(address))
            else:
                bound_port = int(server.add_secure_port(address, _tls_credentials(self._certs)))
        except RuntimeError:
            bound_port = 0
        if not bound_port:
            raise Unavailable(
                f"cannot listen on {address}: it is taken, or no address of this machine",
                would_work="give another --port, or 0 for a free one",
            )
        await server.start()
        self._server = server
        return bound_port

    async def stop(self, grace: float = 2.0) -> None:
        """Accept no more calls. Calls under way have `grace` seconds to end."""
        if self._server is not None:
            await self._server.stop(grace)

    async def answer(self, name: str, request: Value) -> Value:
        """Answer one call. Calls that change something run one at a time."""
        if isinstance(request, DescribeRequest):
            return await self._machine_state()
        async with self._one_at_a_time:
            if isinstance(request, ConfigureRequest):
                await self._configure(request)
            elif isinstance(request, FenceRequest):
                await self._driver.fence(request.epoch, request.devices, request.run)
            elif isinstance(request, DevicesRequest) and name == "Reset":
                await self._driver.reset(request.epoch, request.devices)
            elif isinstance(request, DevicesRequest):
                await self._driver.release(request.epoch, request.devices)
        return Empty()

    async def _configure(self, request: ConfigureRequest) -> None:
        arguments = (request.partition, request.epoch, request.devices)
        if isinstance(self._driver, OwnedDriver):
            await self._driver.configure_for(request.owner, *arguments)
        else:
            await self._driver.configure(*arguments)

    def handler(self, name: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Return the handler that answers the bytes of one call with bytes."""
        request_type = AGENT_METHODS[name].request

        async def handle(request_bytes: bytes, context: Any) -> bytes:
            try:
                nonce = self._authenticate_call(name, request_bytes, context)
                reply_bytes = encode(await self.answer(name, decode(request_type, request_bytes)))
            except PodwrightError as error:
                refusal = error
            except Exception:
                _log.exception("%s failed", name)
                refusal = Internal(
                    "the agent failed", operation=name, would_work="its log says more"
                )
            else:
                if self._secret is not None:
                    reply_proof = self._secret.sign_answer(nonce, reply_bytes)
                    context.set_trailing_metadata(((PROOF_METADATA_KEY, reply_proof),))
                self.calls[name, "OK"] += 1
                return reply_bytes
            self.calls[name, refusal.code] += 1
            _log.info("%s: %s", name, refusal.message)
            await context.abort(
                grpc.StatusCode[refusal.code],
                refusal.message[:1000],
                trailing_metadata=error_metadata(refusal),
            )
            raise AssertionError("abort always raises")

        return handle

    def _authenticate_call(self, method_name: str, request_bytes: bytes, call_context: Any) -> str:
        if self._certs is not None:
            certificate_names = call_context.auth_context().get("x509_subject_alternative_name", ())
            if SERVER_URI.encode() not in certificate_names:
                raise Unauthenticated(
                    "this caller's certificate is not a server's",
                    operation=method_name,
                    would_work="start vipu-server with the certificates of vipu-server --tls-init",
                )
        if self._secret is None:
            return ""
        credential = dict(call_context.invocation_metadata() or ()).get(AUTH_METADATA_KEY, "")
        state = AGENT_METHODS[method_name].changes
        return self._secret.check(
            method_name, request_bytes, str(credential), self._machine, lasting=state
        )

    async def _machine_state(self) -> MachineState:
        machine_report = await self._driver.describe()
        return MachineState(
            name=machine_report.name,
            family=machine_report.family,
            devices=list(machine_report.devices),
            configured=[
                Configured(index=index, partition=partition, epoch=epoch)
                for index, (partition, epoch) in machine_report.configured.items()
            ],
            software=machine_report.software,
            links=dict(machine_report.links or {}),
            fence=machine_report.fence,
            cuts_off=machine_report.cuts_off,
            uid=machine_report.uid,
            protocol=PROTOCOL_VERSION,
            oldest_server=OLDEST_PEER,
        )


def _tls_credentials(certs_folder: Path) -> Any:
    authority_certificate, key, certificate = read_certificates(str(certs_folder))
    return grpc.ssl_server_credentials(
        [(key, certificate)],
        root_certificates=authority_certificate,
        require_client_auth=True,
    )


class _HandlerTable(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Maps the path of each call to its handler."""

    def __init__(self, agent: Agent) -> None:
        self._handlers = {
            f"/{AGENT_SERVICE}/{name}": grpc.unary_unary_rpc_method_handler(agent.handler(name))
            for name in AGENT_METHODS
        }

    def service(self, details: Any) -> Any:
        """Return the handler of a call; None makes gRPC answer UNIMPLEMENTED."""
        return self._handlers.get(details.method)
