"""A driver for a machine that is reached through its agent. The first call imports grpc."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from podwright.agents._driver_interface import MachineReport
from podwright.agents._protocol_versions import check_agent
from podwright.agents._shared_key_auth import AUTH_METADATA_KEY, PROOF_METADATA_KEY, Secret
from podwright.errors import (
    Fenced,
    Internal,
    PodwrightError,
    Unauthenticated,
    Unavailable,
    WrongState,
    error_from_json,
)
from podwright.wire import Empty, Value, agent_name, read_certificates
from podwright.wire.agent import (
    AGENT_METHODS,
    AGENT_SERVICE,
    ConfigureRequest,
    DescribeRequest,
    DevicesRequest,
    FenceRequest,
    MachineState,
)

_V = TypeVar("_V", bound=Value)
_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 1024 * 1024),
    # An agent that comes back is found at once. Each caller decides how long it keeps trying.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # This limits the duration of one connection attempt, although the option's name does not say
    # so: an agent on a busy machine accepts a connection slowly.
    ("grpc.min_reconnect_backoff_ms", 5000),
)

#: Seconds for which a call waits while a channel that lost its agent reconnects. The time is longer
#: than gRPC's longest pause between two attempts. Between attempts, gRPC refuses each call at once.
_COMES_BACK, _RECONNECT_POLL_S = 3.0, 0.02

#: How gRPC words a certificate that is not valid for the requested name.
_WRONG_NAME_PATTERN = re.compile(r"not in peer certificate|[Hh]ostname [Vv]erification")


class RemoteMachine:
    """Implements Driver over podwright.agent.v1.

    name: the name of the machine, which its agent must report too. timeout: seconds that a call may
    take. secret: the key that is shared with the agent. certs_folder: the folder of the server's
    TLS certificates; with it, the agent must show a certificate that names the machine and comes
    from the same authority. certificate: the number of the only certificate that is accepted.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        *,
        timeout: float = 30.0,
        secret: Secret | None = None,
        certs_folder: Path | None = None,
        certificate: str = "",
    ) -> None:
        self.name = name
        self._certificate_number = certificate
        self.where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._timeout = timeout
        self._secret = secret
        self._certs = certs_folder
        self._channel: Any = None
        #: Why the machine must not be changed, by its latest answer; None: it may be changed.
        self._incompatible: WrongState | None = None

    async def describe(self) -> MachineReport:
        """See `Driver.describe`."""
        machine_state = await self._call("Describe", DescribeRequest(), MachineState)
        self._incompatible = None
        try:
            check_agent(self.name, machine_state.protocol, machine_state.oldest_server)
        except WrongState as error:
            self._incompatible = error
            raise
        return MachineReport(
            devices=tuple(machine_state.devices),
            configured={
                configuration.index: (configuration.partition, configuration.epoch)
                for configuration in machine_state.configured
            },
            software=machine_state.software,
            links=machine_state.links or None,
            name=machine_state.name,
            family=machine_state.family,
            fence=machine_state.fence,
            cuts_off=machine_state.cuts_off,
            uid=machine_state.uid,
        )

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.configure`."""
        await self.configure_for("", partition, epoch, devices)

    async def configure_for(
        self, owner: str, partition: str, epoch: int, devices: Sequence[int]
    ) -> None:
        """See `OwnedDriver.configure_for`."""
        request = ConfigureRequest(
            partition=partition, epoch=epoch, devices=list(devices), owner=owner
        )
        await self._call("Configure", request, Empty)

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.reset`."""
        await self._call("Reset", DevicesRequest(epoch=epoch, devices=list(devices)), Empty)

    async def fence(self, epoch: int, devices: Sequence[int], run: str) -> None:
        """See `Driver.fence`."""
        request = FenceRequest(epoch=epoch, devices=list(devices), run=run)
        await self._call("Fence", request, Empty)

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        """See `Driver.release`."""
        await self._call("Release", DevicesRequest(epoch=epoch, devices=list(devices)), Empty)

    async def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _call(self, method_name: str, request: Value, reply_type: type[_V]) -> _V:
        import grpc

        from podwright.wire.messages import decode, encode

        if self._incompatible is not None and AGENT_METHODS[method_name].changes:
            raise self._incompatible
        if self._channel is None:
            self._channel = self._open()
        await self._await_reconnect()
        request_bytes = encode(request)
        metadata, nonce = [], ""
        if self._secret is not None:
            credential, nonce = self._secret.sign(method_name, request_bytes, self.name)
            metadata.append((AUTH_METADATA_KEY, credential))
        call = self._channel.unary_unary(f"/{AGENT_SERVICE}/{method_name}")(
            request_bytes, timeout=self._timeout, metadata=metadata
        )
        try:
            reply_bytes = await call
            if self._secret is not None:
                trailers = dict(await call.trailing_metadata() or ())
                self._secret.check_answer(
                    nonce, reply_bytes, str(trailers.get(PROOF_METADATA_KEY, ""))
                )
            return decode(reply_type, reply_bytes)
        except grpc.aio.AioRpcError as error:
            raise self._call_error(error) from None
        except Unauthenticated as error:
            raise Unavailable(f"machine {self.name}: {error.problem}") from None
        except asyncio.CancelledError:
            call.cancel()
            raise

    async def _await_reconnect(self) -> None:
        """Wait until a channel that lost its agent has tried to reconnect, since the agent may be
        back.
        """
        import grpc

        state = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(_COMES_BACK, self._timeout)
        while self._channel is not None and self._channel.get_state(True) is state:
            if loop.time() > deadline:
                return
            await asyncio.sleep(_RECONNECT_POLL_S)

    def _open(self) -> Any:
        import grpc.aio

        if self._certs is None:
            return grpc.aio.insecure_channel(self.where, options=_CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(*read_certificates(str(self._certs)))
        options = (
            *_CHANNEL_OPTIONS,
            ("grpc.ssl_target_name_override", self._certificate_name()),
        )
        return grpc.aio.secure_channel(self.where, credentials, options=options)

    def _certificate_name(self) -> str:
        return agent_name(self.name, self._certificate_number)

    def _call_error(self, error: Any) -> PodwrightError:
        """Return the agent's own refusal, or Unavailable for every other failure of the call."""
        from podwright.wire.messages import ERROR_KEY

        for metadata_key, error_json in error.trailing_metadata() or ():
            if metadata_key == ERROR_KEY:
                refusal = error_from_json(json.loads(error_json))
                if isinstance(refusal, Fenced | Unavailable):
                    return refusal
                problem = f"machine {self.name}: {refusal.problem}"
                return Internal(
                    problem,
                    would_work=refusal.would_work,
                    operation=refusal.operation,
                    stranger=isinstance(refusal, Unauthenticated),
                )
        status_code = error.code().name
        if status_code == "DEADLINE_EXCEEDED":
            return Unavailable(f"machine {self.name} does not answer within {self._timeout:g} s")
        if status_code == "UNIMPLEMENTED":
            return Internal(f"what answers at {self.where} is not an agent of machine {self.name}")
        if self._certs is not None and _WRONG_NAME_PATTERN.search(error.details() or ""):
            return Unavailable(
                f"what answers at {self.where} has no certificate of {self._certificate_name()}",
                would_work=f"vipu-admin create certificate {self.name} --agent makes one, for "
                f"vipu-agent; create agent {self.name} --replace --certificate N believes it",
                stranger=True,
            )
        return Unavailable(f"machine {self.name} does not answer at {self.where}")
