"""A mapping that everybody reads, and that only its own class changes."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import TypeVar

_T = TypeVar("_T")


class ReadOnlyMapping(Mapping[str, _T]):
    """Values by name, in the order in which they came. A subclass changes `_by_name`.

    What follows from the values (an index of them, a heap of their ends) belongs to the subclass,
    whose methods change both at once, without waiting.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, _T] = {}

    def __getitem__(self, name: str) -> _T:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    # Those of Mapping look each name up again, and lists of partitions are long.

    def values(self) -> ValuesView[_T]:
        """The values."""
        return self._by_name.values()

    def items(self) -> ItemsView[str, _T]:
        """The names and values."""
        return self._by_name.items()
