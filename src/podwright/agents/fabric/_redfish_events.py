"""Events of a Redfish service, which end a pause early. The state itself is always read.

A service may offer a stream of events (EventService, ServerSentEventUri). A thread reads the stream
from the first task on, and each event wakes the caller that pauses between two readings. When the
stream breaks, is not offered or stays silent, only the full pause is lost: polling continues
without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from podwright.errors import PodwrightError

_log = logging.getLogger("podwright.fabric")


@runtime_checkable
class EventTransport(Protocol):
    """A transport that can also read a stream."""

    def lines(self, path: str, headers: dict[str, str]) -> Iterator[bytes]:
        """Yield the lines of a stream as they arrive, each of a bounded length, until it ends.

        Raises Unavailable.
        """
        ...


class RedfishEvents:
    """Wakes pauses by events. transport: reads the stream; without streams, every pause is full.

    changed: is told of each event, in the thread that reads the stream.
    """

    def __init__(self, transport: object, changed: Callable[[], None] = lambda: None) -> None:
        self._transport = transport
        self._changed = changed
        self._event_arrived = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_listening(self) -> bool:
        """Whether the stream is being read."""
        return self._thread is not None and self._thread.is_alive()

    def listen(self, stream_uri: object, headers: dict[str, str]) -> None:
        """Read the stream at this address from now on, unless it is read already.

        Only its path is used: the host in it is the service's or nobody's.
        """
        if self.is_listening:
            return
        if (
            not isinstance(stream_uri, str)
            or not stream_uri
            or not isinstance(self._transport, EventTransport)
        ):
            return
        uri_parts = urlsplit(stream_uri)
        stream_path = f"{uri_parts.path}?{uri_parts.query}" if uri_parts.query else uri_parts.path
        reader_arguments = self._transport, stream_path, headers
        self._thread = threading.Thread(
            target=self._read_events, args=reader_arguments, name="redfish-events", daemon=True
        )
        self._thread.start()

    def pause(self, seconds: float, sleep: Callable[[float], None]) -> None:
        """Wait for these seconds, or until an event arrives. sleep: waits when there is no
        stream.
        """
        if not self.is_listening:
            sleep(seconds)
            return
        self._event_arrived.wait(seconds)
        self._event_arrived.clear()

    def _read_events(
        self, transport: EventTransport, stream_path: str, headers: dict[str, str]
    ) -> None:
        try:
            for line in transport.lines(stream_path, headers):
                if line.startswith(b"data:"):
                    self._event_arrived.set()
                    self._changed()
        except PodwrightError as error:
            _log.info("the Redfish service's events end: %s", error.message)
        self._event_arrived.set()
