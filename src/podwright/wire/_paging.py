"""Lists come in pages; here they become whole again, for clients and for fronts that know none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from podwright.wire._value import Value
from podwright.wire._values import ListRequest

_V = TypeVar("_V", bound=Value)


def next_page(request: Value, reply: Value) -> ListRequest | None:
    """What asks for the page behind a reply; None: it was the last, or is no list.

    Who names a page_size wants pages, and gets them one by one.
    """
    token = getattr(reply, "next_page_token", "")
    if not token or not isinstance(request, ListRequest) or request.page_size:
        return None
    return msgspec.structs.replace(request, page_token=token)


def joined(pages: Sequence[_V]) -> _V:
    """Pages as one list. The first field of a list is its items."""
    if len(pages) == 1:
        return pages[0]
    items = pages[0].__struct_fields__[0]
    every = [item for page in pages for item in getattr(page, items)]
    return msgspec.structs.replace(pages[-1], **{items: every})
