"""Lists in pages: what one answer holds is bounded, so that none holds up the calls beside it.

A page is what stands after a token, in an order that does not change while a list grows: the token
is the place of the last item before it. What is there throughout is listed exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from podwright.errors import InvalidRequest
from podwright.wire import ListRequest

PAGE: Final = 250  #: items, where the caller leaves it open
MOST: Final = 1000  #: items, whatever is asked for
HEAVY: Final = 4000  #: devices that the items of a page may name together

_T = TypeVar("_T")


class ListPage(Generic[_T]):
    """One page while it is filled. token: what to ask for next, empty for the last page.

    Raises InvalidRequest for a size that is none.
    """

    def __init__(self, request: ListRequest) -> None:
        if request.page_size < 0:
            raise InvalidRequest(
                f"a page of {request.page_size} items is none",
                operation="list",
                would_work=f"use a page_size from 1 to {MOST}, or 0 to leave it to the server",
                page_size=request.page_size,
            )
        self.items: list[_T] = []
        self.token = ""
        self._page_size = min(request.page_size or PAGE, MOST)
        self._weight = 0
        self._last = ""

    @property
    def full(self) -> bool:
        """Whether nothing more fits. To be asked when there is one more: then `token` is set."""
        if len(self.items) < self._page_size and self._weight < HEAVY:
            return False
        self.token = self._last
        return True

    def add(self, page_position: str, item: _T, device_count: int = 0) -> None:
        """One more. page_position: what stands after it is the next page. device_count: devices
        that it names.
        """
        self.items.append(item)
        self._weight += device_count
        self._last = page_position


def after(names: Iterable[str], page_token: str) -> list[str]:
    """The names after that of a token, in order. Of few names: all of them are looked at."""
    return sorted(name for name in names if name > page_token)


def defined_after(ordered_names: Iterable[str], page_token: str) -> Iterator[str]:
    """The names behind a token, in the order that they have. Raises InvalidRequest when what the
    token names has gone."""
    remaining_names = iter(ordered_names)
    if page_token and page_token not in remaining_names:  # it is walked up to the token
        raise InvalidRequest(
            "the list has changed since its last page",
            operation="list",
            would_work="list from the beginning",
            page_token=page_token[:80],
        )
    return remaining_names


def bad_page_token(page_token: str) -> InvalidRequest:
    """The error for a token that no reply of this server contained."""
    return InvalidRequest(
        f"{page_token[:80]!r} is not a page_token",
        operation="list",
        would_work="take next_page_token of the answer before, as it is",
    )
