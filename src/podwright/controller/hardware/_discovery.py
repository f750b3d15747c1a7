"""Agents that announced themselves: a hint for the administrator, and nothing more.

Anybody may announce anything, so little is kept of it, not for long, and only what came by an
interface on which the server was told to listen.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from podwright.controller.hardware._registry import check_name
from podwright.errors import InvalidRequest, WrongState
from podwright.wire import Announcement, DiscoveredAgent

#: Seconds after which one that is not repeated is forgotten.
KEEP_S = 60.0
_MAX_ANNOUNCEMENTS = 4096


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
        self._interface_to_host = interface_to
        self._clock = clock
        self._seen: dict[str, tuple[float, str, Announcement]] = {}

    def announce(self, announcement: Announcement) -> None:
        """Note what an agent announces.

        Raises InvalidRequest for a malformed announcement, WrongState if none are accepted.
        """
        if not self.interfaces:
            raise _not_listening("announce agent")
        check_name("an agent", announcement.name)
        if not 0 < announcement.port < 65536 or not 0 < len(announcement.host) < 256:
            raise InvalidRequest("that is not an address of an agent", operation="announce agent")
        interface = self._interface_to_host(announcement.host)
        if interface not in self.interfaces:
            raise WrongState(
                f"{announcement.host} is not reached by {' or '.join(self.interfaces)}",
                operation="announce agent",
            )
        if announcement.name not in self._seen and len(self._seen) >= _MAX_ANNOUNCEMENTS:
            self._forget_expired()
            if len(self._seen) >= _MAX_ANNOUNCEMENTS:
                raise WrongState("too many agents announce themselves", operation="announce agent")
        self._seen[announcement.name] = (self._clock(), interface, announcement)

    def list(self) -> list[DiscoveredAgent]:
        """The recent announcements, by name. Raises WrongState if none are accepted."""
        if not self.interfaces:
            raise _not_listening("discover agent")
        self._forget_expired()
        now = self._clock()
        return [
            DiscoveredAgent(
                name=name,
                host=announcement.host,
                port=announcement.port,
                interface=interface,
                seen=now - seen_at,
            )
            for name, (seen_at, interface, announcement) in sorted(self._seen.items())
        ]

    def find(self, name: str) -> Announcement | None:
        """The announcement of the agent of this name, or None."""
        announcement = self._seen.get(name)
        return announcement[2] if announcement else None

    def _forget_expired(self) -> None:
        oldest_kept_time = self._clock() - KEEP_S
        self._seen = {
            name: announcement
            for name, announcement in self._seen.items()
            if announcement[0] >= oldest_kept_time
        }


def _not_listening(action: str) -> WrongState:
    return WrongState(
        "this server does not listen for agents",
        operation=action,
        would_work="start vipu-server with --autodiscovery-listen-interfaces",
    )
