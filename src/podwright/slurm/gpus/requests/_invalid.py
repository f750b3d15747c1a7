"""InvalidRequest, imported only when one is needed.

The door of `podwright.wire` brings its values with it, and they cost more time than all that
explain-request or lint otherwise do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podwright.wire import InvalidRequest


def invalid(problem: str, *, would_work: str = "", **data: Any) -> InvalidRequest:
    """An InvalidRequest to raise."""
    return invalid_type()(problem, would_work=would_work, **data)


def invalid_type() -> type[InvalidRequest]:
    """The type, for an `except`: Python asks for it only when something was raised."""
    from podwright.wire import InvalidRequest

    return InvalidRequest
