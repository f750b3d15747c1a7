"""Types that any thread may decode.

msgspec works out what it must know of a type at the type's first use, nested types included. A
second thread that uses one of them meanwhile crashes the process (seen with 0.22).
"""

from __future__ import annotations

from _thread import allocate_lock  # threading costs 7 ms
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_ready: set[object] = set()
_lock = allocate_lock()


def prepared(kind: type[_T]) -> type[_T]:
    """The type itself, ready to be decoded. Where threads may decode, all ask here first."""
    if kind not in _ready:
        with _lock:
            msgspec.json.Decoder(kind)
            _ready.add(kind)
    return kind
