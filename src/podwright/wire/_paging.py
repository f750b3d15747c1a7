"""Lists are sent in pages. This module joins them, for clients and for fronts without pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from podwright.wire._value import Value
from podwright.wire._values import ListRequest

_V = TypeVar("_V", bound=Value)


def next_page(request: Value, reply: Value) -> ListRequest | None:
    """Return the request for the page after a reply.

    None: the reply was the last page, or is not a list. A caller that sets a page_size wants single
    pages, so it gets None as well.
    """
    token = getattr(reply, "next_page_token", "")
    if not token or not isinstance(request, ListRequest) or request.page_size:
        return None
    return msgspec.structs.replace(request, page_token=token)


def joined(pages: Sequence[_V]) -> _V:
    """Return pages as one list. The first field of a list holds its items."""
    if len(pages) == 1:
        return pages[0]
    items = pages[0].__struct_fields__[0]
    all_items = [item for page in pages for item in getattr(page, items)]
    return msgspec.structs.replace(pages[-1], **{items: all_items})
