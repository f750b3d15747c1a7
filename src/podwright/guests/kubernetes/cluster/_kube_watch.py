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
from podwright.guests.kubernetes.cluster._kube_interface import Object, Told

_log = logging.getLogger("podwright.guests.kubernetes")
#: Seconds after which the API server ends a stream, also one without any change.
_STREAM_LIFETIME_S: Final = 10
#: Seconds after which a stream that has not ended is silent: the API server is frozen, or something
#: on the way drops packets. Bookmarks come too rarely to tell.
_SILENT_S: Final = 12.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
_MAX_EVENT_BYTES: Final = 64 << 20  # bytes


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
        pause_seconds, reported_problem = _FIRST_PAUSE_S, ""
        while True:
            try:
                resource_version = await self._list_objects()
                while True:
                    resource_version = await self._follow_changes(resource_version)
                    pause_seconds, reported_problem = _FIRST_PAUSE_S, ""
            except PodwrightError as error:
                self.problem = str(error)
                if self.deaf_since is None:
                    self.deaf_since = self._clock()
                if self.problem != reported_problem:
                    _log.warning("watch of %s: %s", self.kind, error)
                reported_problem = self.problem
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_S)

    async def _list_objects(self) -> str:
        items, version = await self._api.listed(self._path, self._query)
        known_before, self._known = self._known, {}
        for item in items:
            self._report_change("", item)
        for uid in known_before.keys() - self._known.keys():
            self._on_event(self.kind, "DELETED", known_before[uid])
        return version

    async def _follow_changes(self, resource_version: str) -> str:
        """Stream changes from a version on. Return the version to continue from when the API server
        ends the stream. Raises PodwrightError where a new list is needed.
        """
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": _STREAM_LIFETIME_S,
        }
        unfinished_line = b""
        try:
            async with asyncio.timeout(_SILENT_S):
                async for piece in self._api.stream(self._path, query):
                    self.deaf_since = None  # the first is empty: the watch is accepted
                    *lines, unfinished_line = (unfinished_line + piece).split(b"\n")
                    if len(unfinished_line) > _MAX_EVENT_BYTES:
                        raise Unavailable(f"the API server sends a {self.kind} of more than 64 MiB")
                    for line in filter(None, lines):
                        resource_version = self._read_event(line) or resource_version
        except TimeoutError:
            raise Unavailable(
                f"the API server did not end a watch of {_STREAM_LIFETIME_S} s within "
                f"{_SILENT_S:g} s"
            ) from None
        return resource_version

    def _read_event(self, event_line: bytes) -> str:
        try:
            event = json.loads(event_line)
            event_type, item = str(event["type"]), event["object"]
            version = str(item.get("metadata", {}).get("resourceVersion", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable("the API server sends what is not an event") from None
        if event_type == "ERROR":
            raise Unavailable(f"the watch ended: {str(item.get('message') or item)[:300]}")
        if event_type != "BOOKMARK":
            self._report_change(event_type, item)
        return version

    def _report_change(self, event_type: str, item: Object) -> None:
        metadata = item.get("metadata") or {}
        uid = str(metadata.get("uid") or "")
        if event_type == "DELETED":
            self._known.pop(uid, None)
        else:
            fields = ("namespace", "name", "uid", "labels")
            self._known[uid] = {
                "metadata": {name: metadata[name] for name in fields if name in metadata}
            }
        self._on_event(self.kind, event_type, item)
