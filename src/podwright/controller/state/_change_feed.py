"""What has changed since a moment, by key, without looking at what has not."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_CHANGES: Final = 16_384  #: keys remembered; who knows less than these has to read all anew


class ChangeFeed:
    """The keys of things that changed, each with the number of its last change.

    revision: the number of the last change of all.
    """

    def __init__(self, limit: int = MAX_CHANGES) -> None:
        self._limit = limit
        self._revisions: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0  #: the last change that is remembered no more
        self.revision = 0

    def touch(self, key: str) -> None:
        """Note that a thing changed, came or went."""
        self.revision += 1
        self._revisions[key] = self.revision
        self._revisions.move_to_end(key)
        if len(self._revisions) > self._limit:
            _, self._forgotten = self._revisions.popitem(last=False)

    def touch_all(self) -> None:
        """Note that anything may have changed."""
        self.revision += 1
        self._revisions.clear()
        self._forgotten = self.revision

    def since(self, revision: int) -> list[str] | None:
        """The keys that changed after a revision; None: more than is remembered."""
        if revision < self._forgotten:
            return None
        keys: list[str] = []
        for key, changed_at in reversed(self._revisions.items()):
            if changed_at <= revision:
                break
            keys.append(key)
        return keys
