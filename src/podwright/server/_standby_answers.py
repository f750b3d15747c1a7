"""What a server answers while another one is active on the store that both share.

It takes the controller's place, so that both fronts serve it as they would serve a controller. A
client that knows several addresses goes on to the next. `GetServerInfo` and `/healthz` say which
server is active.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from podwright.controller import Caller
from podwright.errors import PodwrightError, Unavailable
from podwright.fabric import Cluster
from podwright.wire import Value


class Standby:
    """Takes a controller's place. active: the active server's name for itself; empty: not known."""

    failure: PodwrightError | None = None
    idle = False
    simulated = False
    fabric = fabric_problem = ""
    fabric_age = None
    epoch = 0
    changes = 0
    moves: Mapping[str, int] = MappingProxyType({})

    def __init__(self) -> None:
        self.active = ""
        self.clusters: list[Cluster] = []

    async def start(self) -> None:
        """Do nothing: there is nothing to recover."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def admitted(self, caller: Caller, request: Value) -> tuple[Caller, Value]:
        """Return caller and request unchanged: only the active server knows more of the caller."""
        return caller, request

    read_only = None

    def user_of(self, caller: Caller) -> tuple[Caller, float]:
        """Return the caller unchanged: only the active server knows more of it."""
        return caller, 0.0

    def redacted(self, caller: Caller, reply: Any) -> Any:
        """Return the reply unchanged: a standby's description of itself is public."""
        return reply

    def __getattr__(self, call_name: str) -> Callable[..., Awaitable[Any]]:
        """Return a function that refuses any call of podwright.v1."""
        if call_name.startswith("_"):
            raise AttributeError(call_name)

        async def refuse(*_: object) -> Any:
            raise self.refusal(call_name)

        return refuse

    def refusal(self, action: str = "") -> Unavailable:
        """Return the refusal that names the active server."""
        text = f"; active is {self.active}" if self.active else ""
        return Unavailable(
            f"this server stands by for another one{text}",
            operation=action.replace("_", " "),
            would_work="name both servers, as in --api-host host1,host2, and the active one is "
            "found",
            standby=True,
            active=self.active,
        )
