"""One view of a server for all pages that may see the same.

It is read once and sent to all of them.

The stream has server-sent events. `all` carries the whole view, for a page that is new or was too
slow. `change` carries the differences since the last event. `away` says that the server cannot
answer. For a page that does not read, events are not kept beyond `BEHIND`; it gets the whole view
later.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

import msgspec

from podwright.errors import PodwrightError
from podwright.page._snapshot import changes

VIEW_READ_INTERVAL_S: Final = 0.2  #: seconds between two readings
PAUSE_PER_READ_SECOND: Final = (
    10.0  #: after a reading of t seconds there is a pause of at least SHARE x t
)
LOOK_ANYWAY: Final = 5.0  #: seconds after which the view is read although nothing has changed
PING: Final = 5.0  #: seconds of silence after which a comment keeps the connection alive
BEHIND: Final = 16  #: the most changes that wait for one page before it gets the whole view again
_encode = msgspec.json.Encoder(order=None).encode


class Live:
    """A view.

    read_snapshot: returns all that there is to see; raises wire.PodwrightError where the server
    cannot answer. count_changes: returns a number that grows with every known change. clock:
    seconds, never backwards.
    """

    def __init__(
        self,
        read_snapshot: Callable[[], Awaitable[dict[str, dict[str, object]]]],
        count_changes: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take, self._counted, self._clock = read_snapshot, count_changes, clock
        self._snapshot: dict[str, dict[str, object]] = {}
        self._revision = 0
        self._full_event = b""
        self._problem = ""
        self._known = self._closed = False
        self._readers: set[_PageStream] = set()
        self._refreshing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._readers)

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield the events for one page, from now on, without end."""
        reader = _PageStream()
        self._readers.add(reader)
        try:
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._refresh())
            reader.behind = self._known
            while not self._closed:
                if reader.behind:
                    reader.behind = False
                    reader.waiting.clear()
                    yield self._whole_view_event()
                elif reader.waiting:
                    yield reader.waiting.popleft()
                else:
                    reader.news.clear()
                    try:
                        async with asyncio.timeout(PING):
                            await reader.news.wait()
                    except TimeoutError:
                        yield b": still here\n\n"
        finally:
            self._readers.discard(reader)

    async def close(self) -> None:
        """Stop reading, and end the stream of each page."""
        self._closed = True
        for reader in self._readers:
            reader.news.set()
        if self._refreshing is not None:
            self._refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._refreshing

    def _whole_view_event(self) -> bytes:
        if self._problem:
            return _encode_event("away", self._revision, {"problem": self._problem})
        if not self._full_event:
            self._full_event = _encode_event("all", self._revision, {"topics": self._snapshot})
        return self._full_event

    async def _refresh(self) -> None:
        seen_count, last_read_at = -1, -LOOK_ANYWAY
        while self._readers:
            change_count, started_at = self._counted(), self._clock()
            if (
                not self._known
                or change_count != seen_count
                or started_at >= last_read_at + LOOK_ANYWAY
            ):
                await self._refresh_view()
                seen_count, last_read_at = change_count, started_at
            seconds = self._clock() - started_at
            await asyncio.sleep(max(VIEW_READ_INTERVAL_S, PAUSE_PER_READ_SECOND * seconds))
        # No page is left. The next one must get the view of its own time.
        self._known, self._snapshot, self._full_event = False, {}, b""

    async def _refresh_view(self) -> None:
        try:
            new_snapshot = await self._take()
        except PodwrightError as error:
            if error.problem != self._problem:
                self._problem = error.problem
                self._notify_pages(
                    _encode_event("away", self._revision, {"problem": self._problem})
                )
            self._known = True
            return
        was_away, self._problem = self._problem, ""
        difference = changes(self._snapshot, new_snapshot)
        if not (difference or was_away or not self._known):
            return
        send_whole = not self._known or bool(was_away)
        self._revision += 1
        self._snapshot, self._full_event, self._known = new_snapshot, b"", True
        if send_whole:
            self._notify_pages(None)
        else:
            self._notify_pages(_encode_event("change", self._revision, {"topics": difference}))

    def _notify_pages(self, event: bytes | None) -> None:
        """Send an event to all pages; None sends the whole view."""
        for reader in self._readers:
            if event is None or len(reader.waiting) >= BEHIND:
                reader.behind = True
                reader.waiting.clear()
            else:
                reader.waiting.append(event)
            reader.news.set()


class _PageStream:
    """The stream of one page. behind: the page needs the whole view."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.news = asyncio.Event()
        self.behind = False


def _encode_event(event_name: str, revision: int, event_data: object) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (event_name.encode(), revision, _encode(event_data))
