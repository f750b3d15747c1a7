"""One view of a server for all pages that may see the same: looked at once, told to everybody.

Server-sent events: `all`, the whole, to one who comes or was too slow; `change`, what is different
since; `away`, when the server cannot say. Whoever does not read is told less, never remembered.
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

INTERVAL: Final = 0.2  #: seconds between two looks
SHARE: Final = 10.0  #: a look that took t seconds is followed by a pause of at least SHARE x t
LOOK_ANYWAY: Final = 5.0  #: seconds after which a look is taken though nothing was counted
PING: Final = 5.0  #: seconds of silence after which a comment keeps the connection alive
BEHIND: Final = 16  #: changes that one may be behind before it gets the whole again
_encode = msgspec.json.Encoder(order=None).encode


class Live:
    """A view. look: all that there is to see; raises wire.PodwrightError where nothing can be said.
    counted: grows with every change that is known of. clock: seconds, never backwards.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[dict[str, dict[str, object]]]],
        counted: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take, self._counted, self._clock = look, counted, clock
        self._snapshot: dict[str, dict[str, object]] = {}
        self._revision = 0
        self._whole = b""
        self._away = ""
        self._known = False
        self._readers: set[_Reader] = set()
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._readers)

    async def events(self) -> AsyncGenerator[bytes]:
        """What to send to one page, from now on, without end."""
        reader = _Reader()
        self._readers.add(reader)
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look())
            reader.behind = self._known
            while True:
                if reader.behind:
                    reader.behind = False
                    reader.waiting.clear()
                    yield self._all()
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
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    def _all(self) -> bytes:
        if self._away:
            return _event("away", self._revision, {"problem": self._away})
        if not self._whole:
            self._whole = _event("all", self._revision, {"topics": self._snapshot})
        return self._whole

    async def _look(self) -> None:
        seen, looked = -1, -LOOK_ANYWAY
        while self._readers:
            counted, begun = self._counted(), self._clock()
            if not self._known or counted != seen or begun >= looked + LOOK_ANYWAY:
                await self._look_once()
                seen, looked = counted, begun
            took = self._clock() - begun
            await asyncio.sleep(max(INTERVAL, SHARE * took))
        # Nobody looks: who comes next gets the truth of then.
        self._known, self._snapshot, self._whole = False, {}, b""

    async def _look_once(self) -> None:
        try:
            after = await self._take()
        except PodwrightError as error:
            if error.problem != self._away:
                self._away = error.problem
                self._tell(_event("away", self._revision, {"problem": self._away}))
            self._known = True
            return
        was_away, self._away = self._away, ""
        told = changes(self._snapshot, after)
        if not (told or was_away or not self._known):
            return
        first = not self._known or bool(was_away)
        self._revision += 1
        self._snapshot, self._whole, self._known = after, b"", True
        if first:
            self._tell(None)
        else:
            self._tell(_event("change", self._revision, {"topics": told}))

    def _tell(self, event: bytes | None) -> None:
        """To all; None: the whole."""
        for reader in self._readers:
            if event is None or len(reader.waiting) >= BEHIND:
                reader.behind = True
                reader.waiting.clear()
            else:
                reader.waiting.append(event)
            reader.news.set()


class _Reader:
    """One page. behind: it needs the whole."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.news = asyncio.Event()
        self.behind = False


def _event(kind: str, revision: int, value: object) -> bytes:
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), revision, _encode(value))
