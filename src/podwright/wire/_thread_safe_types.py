"""Types that any thread may decode.

msgspec analyses a type, with the types nested in it, at its first use. If a second thread uses one
of these types meanwhile, the process crashes (seen with 0.22). `prepared` therefore runs that
analysis under a lock, and a type counts as ready only after it.
"""

from __future__ import annotations

from _thread import allocate_lock  # threading costs 7 ms
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_prepared_types: set[object] = set()
_prepare_lock = allocate_lock()


def prepared(decoded_type: type[_T]) -> type[_T]:
    """Return the type itself, ready to be decoded.

    Code that may run in several threads calls it first.
    """
    if decoded_type not in _prepared_types:
        with _prepare_lock:
            msgspec.json.Decoder(decoded_type)
            _prepared_types.add(decoded_type)
    return decoded_type
