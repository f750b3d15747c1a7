"""All calls of podwright.v1."""

from __future__ import annotations

from collections.abc import Iterable

from podwright.wire import _admin, _jobs, _moving, _values, _waiters
from podwright.wire._method import Method


def by_name(calls: Iterable[Method]) -> dict[str, Method]:
    """Return calls by their names. Raises ValueError for a name that two calls have."""
    methods: dict[str, Method] = {}
    for call in calls:
        if call.name in methods:
            raise ValueError(f"two calls are named {call.name}: give one of them another name")
        methods[call.name] = call
    return methods


#: Every call, by name.
METHODS: dict[str, Method] = by_name(
    (*_values.CALLS, *_waiters.CALLS, *_jobs.CALLS, *_moving.CALLS, *_admin.CALLS)
)
