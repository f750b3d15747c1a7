"""What a server answers while another one is active on the store that both share.

It stands in the controller's place, so that both fronts serve it as they would a controller. A
client that knows several addresses goes on to the next; `GetServerInfo` and `/healthz` say who
is active.
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
    """In the place of a controller. active: who is, in that one's words; empty: nobody known."""

    failure: PodwrightError | None = None
    idle = False
    simulated = False
    epoch = 0
    changes = 0
    moves: Mapping[str, int] = MappingProxyType({})

    def __init__(self) -> None:
        self.active = ""
        self.clusters: list[Cluster] = []

    async def start(self) -> None:
        """Nothing to recover."""

    async def close(self) -> None:
        """Nothing to let go of."""

    def admitted(self, caller: Caller, request: Value) -> tuple[Caller, Value]:
        """The one that is active knows more."""
        return caller, request

    read_only = None

    def user_of(self, caller: Caller) -> tuple[Caller, float]:
        """The one that is active knows more."""
        return caller, 0.0

    def shown(self, caller: Caller, reply: Any) -> Any:
        """What this one says of itself is for all."""
        return reply

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Every call of podwright.v1, refused."""
        if name.startswith("_"):
            raise AttributeError(name)

        async def refuse(*_: object) -> Any:
            raise self.refusal(name)

        return refuse

    def refusal(self, action: str = "") -> Unavailable:
        """This one is not the one to ask."""
        who = f"; active is {self.active}" if self.active else ""
        return Unavailable(
            f"this server stands by for another one{who}",
            asked=action.replace("_", " "),
            would_work="name both servers, as in --api-host host1,host2, and the active one is "
            "found",
            standby=True,
            active=self.active,
        )
