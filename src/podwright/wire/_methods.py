"""All calls of podwright.v1."""

from __future__ import annotations

from podwright.wire import _admin, _jobs, _moving, _values, _waiters
from podwright.wire._method import Method

#: Every call, by name.
METHODS: dict[str, Method] = {
    call.name: call
    for call in (*_values.CALLS, *_waiters.CALLS, *_jobs.CALLS, *_moving.CALLS, *_admin.CALLS)
}
