"""All calls of podwright.v1."""

from __future__ import annotations

from collections.abc import Iterable

from podwright.wire import _admin, _jobs, _moving, _values, _waiters
from podwright.wire._method import Method


def by_name(call_methods: Iterable[Method]) -> dict[str, Method]:
    """Return calls by their names. Raises ValueError for a name that two calls have."""
    method_by_name: dict[str, Method] = {}
    for method in call_methods:
        if method.name in method_by_name:
            raise ValueError(f"two calls are named {method.name}: give one of them another name")
        method_by_name[method.name] = method
    return method_by_name


#: Every call, by name.
METHODS: dict[str, Method] = by_name(
    (*_values.CALLS, *_waiters.CALLS, *_jobs.CALLS, *_moving.CALLS, *_admin.CALLS)
)
