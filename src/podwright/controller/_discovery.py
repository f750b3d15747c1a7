"""Agents that announced themselves: a hint for the administrator, and nothing more.

Anybody may announce anything, so little is kept of it, not for long, and only what came by an
interface on which the server was told to listen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from podwright.controller._registry import check_name
from podwright.errors import InvalidRequest, WrongState
from podwright.wire import Announcement, DiscoveredAgent

#: Seconds after which one that is not repeated is forgotten.
KEEP = 60.0
_MOST = 4096


class Discovery:
    """What was announced. interface_to: the interface by which a host is reached, or empty.

    interfaces: those on which announcements count; none: nobody is discovered.
    """

    def __init__(
        self,
        interfaces: tuple[str, ...],
        interface_to: Callable[[str], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interfaces = interfaces
        self._interface_to = interface_to
        self._clock = clock
        self._seen: dict[str, tuple[float, str, Announcement]] = {}

    def announce(self, said: Announcement) -> None:
        """Raises InvalidRequest for what cannot be, WrongState where nobody listens."""
        if not self.interfaces:
            raise _deaf("announce agent")
        check_name("an agent", said.name)
        if not 0 < said.port < 65536 or not 0 < len(said.host) < 256:
            raise InvalidRequest("that is no address of an agent", asked="announce agent")
        interface = self._interface_to(said.host)
        if interface not in self.interfaces:
            raise WrongState(
                f"{said.host} is not reached by {' or '.join(self.interfaces)}",
                asked="announce agent",
            )
        if said.name not in self._seen and len(self._seen) >= _MOST:
            self._forget()
            if len(self._seen) >= _MOST:
                raise WrongState("too many agents announce themselves", asked="announce agent")
        self._seen[said.name] = (self._clock(), interface, said)

    def list(self) -> list[DiscoveredAgent]:
        """Who announced himself lately. Raises WrongState where nobody listens."""
        if not self.interfaces:
            raise _deaf("discover agent")
        self._forget()
        now = self._clock()
        return [
            DiscoveredAgent(
                name=name, host=said.host, port=said.port, interface=interface, seen=now - at
            )
            for name, (at, interface, said) in sorted(self._seen.items())
        ]

    def find(self, name: str) -> Announcement | None:
        """What an agent of this name announced."""
        found = self._seen.get(name)
        return found[2] if found else None

    def _forget(self) -> None:
        old = self._clock() - KEEP
        self._seen = {name: entry for name, entry in self._seen.items() if entry[0] >= old}


def _deaf(action: str) -> WrongState:
    return WrongState(
        "this server does not listen for agents",
        asked=action,
        would_work="start vipu-server with --autodiscovery-listen-interfaces",
    )
