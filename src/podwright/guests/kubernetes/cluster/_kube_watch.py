"""Watches one kind of object: lists what exists, then streams the changes, until cancelled.

A watch ends all the time: the API server restarts, a version becomes too old (410), or the
definition of IPUJob is deleted and applied again (404 meanwhile). After each end the watch lists
anew, so it misses no change. An object that was known before and is not in the list has been
deleted meanwhile, and is reported as such.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol

from podwright.errors import PodwrightError, Unavailable
from podwright.guests.kubernetes.cluster._kube import Object, Told

_log = logging.getLogger("podwright.guests.kubernetes")
#: Seconds after which the API server ends a stream. A connection that broke without a word is
#: noticed by then.
_STREAM_S: Final = 60
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
_LARGEST_EVENT: Final = 64 << 20  # bytes


class WatchedApi(Protocol):
    """What a watch asks of the API server. Both raise PodwrightError."""

    async def listed(self, path: str, query: Mapping[str, Any]) -> tuple[list[Object], str]:
        """Return all objects, and the version of the list."""
        ...

    def stream(self, path: str, query: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """Return the body of a watch in pieces, as they arrive."""
        ...


class KindWatch:
    """The watch of one kind.

    query: what selects the objects, such as labelSelector. on_event: called with the kind, the
    event ("" for what the list shows) and the object. clock: returns seconds and never goes
    backwards.
    """

    def __init__(
        self,
        api: WatchedApi,
        kind: str,
        path: str,
        query: Mapping[str, Any],
        on_event: Told,
        clock: Callable[[], float],
    ) -> None:
        self.kind = kind
        self._api, self._path, self._query = api, path, query
        self._on_event, self._clock = on_event, clock
        self._known: dict[str, Object] = {}  # by uid: what a deletion is reported with
        #: Since when no change would be noticed; None while changes are.
        self.deaf_since: float | None = clock()
        self.problem = "it has not begun"

    async def run(self) -> None:
        """Watch until cancelled."""
        pause, reported = _FIRST_PAUSE_S, ""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._follow(version)
                    pause, reported = _FIRST_PAUSE_S, ""
            except PodwrightError as error:
                self.problem = str(error)
                if self.deaf_since is None:
                    self.deaf_since = self._clock()
                if self.problem != reported:
                    _log.warning("watch of %s: %s", self.kind, error)
                reported = self.problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _list(self) -> str:
        items, version = await self._api.listed(self._path, self._query)
        before, self._known = self._known, {}
        for item in items:
            self._report("", item)
        for uid in before.keys() - self._known.keys():
            self._on_event(self.kind, "DELETED", before[uid])
        return version

    async def _follow(self, version: str) -> str:
        """Stream changes from a version on. Return the version to continue from when the API server
        ends the stream. Raises PodwrightError where a new list is needed.
        """
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": _STREAM_S,
        }
        rest = b""
        async for piece in self._api.stream(self._path, query):
            self.deaf_since = None  # the first piece is empty: the server has accepted the watch
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > _LARGEST_EVENT:
                raise Unavailable(f"the API server sends a {self.kind} of more than 64 MiB")
            for line in filter(None, lines):
                version = self._event(line) or version
        return version

    def _event(self, line: bytes) -> str:
        try:
            event = json.loads(line)
            kind, item = str(event["type"]), event["object"]
            version = str(item.get("metadata", {}).get("resourceVersion", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable("the API server sends what is not an event") from None
        if kind == "ERROR":
            raise Unavailable(f"the watch ended: {str(item.get('message') or item)[:300]}")
        if kind != "BOOKMARK":
            self._report(kind, item)
        return version

    def _report(self, event: str, item: Object) -> None:
        meta = item.get("metadata") or {}
        uid = str(meta.get("uid") or "")
        if event == "DELETED":
            self._known.pop(uid, None)
        else:
            names = ("namespace", "name", "uid", "labels")
            self._known[uid] = {"metadata": {name: meta[name] for name in names if name in meta}}
        self._on_event(self.kind, event, item)
