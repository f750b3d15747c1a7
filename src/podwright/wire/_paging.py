"""Lists are sent in pages. This module joins them, for clients and for fronts without pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from podwright.wire._value import Value
from podwright.wire._values import ListRequest

_V = TypeVar("_V", bound=Value)


def next_page(list_request: Value, list_reply: Value) -> ListRequest | None:
    """Return the request for the page after a reply.

    None: the reply was the last page, or is not a list. A caller that sets a page_size wants single
    pages, so it gets None as well.
    """
    token = getattr(list_reply, "next_page_token", "")
    if not token or not isinstance(list_request, ListRequest) or list_request.page_size:
        return None
    return msgspec.structs.replace(list_request, page_token=token)


def joined(list_pages: Sequence[_V]) -> _V:
    """Return pages as one list. The first field of a list holds its items."""
    if len(list_pages) == 1:
        return list_pages[0]
    field = list_pages[0].__struct_fields__[0]
    all_items = [item for page in list_pages for item in getattr(page, field)]
    return msgspec.structs.replace(list_pages[-1], **{field: all_items})
