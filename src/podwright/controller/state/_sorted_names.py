"""Names in order, kept so while names come and go."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

_BLOCK: Final = 512  #: names of a block; one with twice as many is split


class SortedNames:
    """A set of names in order. Adding and discarding a name costs the same, however many there are.

    The names are in blocks, which are in order; `_last` has the last name of each.
    """

    __slots__ = ("_blocks", "_last", "_size")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._last: list[str] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        return self.after("")

    def add(self, name: str) -> None:
        """Add a name, unless it is there."""
        if not self._blocks:
            self._blocks, self._last, self._size = [[name]], [name], 1
            return
        place = min(bisect_left(self._last, name), len(self._blocks) - 1)
        block = self._blocks[place]
        position = bisect_left(block, name)
        if position < len(block) and block[position] == name:
            return
        insort(block, name)
        self._size += 1
        self._last[place] = block[-1]
        if len(block) >= 2 * _BLOCK:
            self._blocks[place : place + 1] = [block[:_BLOCK], block[_BLOCK:]]
            self._last[place : place + 1] = [block[_BLOCK - 1], block[-1]]

    def discard(self, name: str) -> None:
        """Discard a name, if it is there."""
        place = bisect_left(self._last, name)
        if place == len(self._blocks):
            return
        block = self._blocks[place]
        position = bisect_left(block, name)
        if block[position] != name:
            return
        del block[position]
        self._size -= 1
        if block:
            self._last[place] = block[-1]
        else:
            del self._blocks[place], self._last[place]

    def after(self, name: str) -> Iterator[str]:
        """The names behind this one, in order. Names may come and go meanwhile."""
        while (place := bisect_right(self._last, name)) < len(self._blocks):
            block = self._blocks[place]
            rest = block[bisect_right(block, name) :]
            yield from rest
            name = rest[-1]
