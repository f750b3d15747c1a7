"""Keeps Python's cyclic garbage collector away from objects that a server keeps for good.

A start makes millions of objects and hardly any cycle. The collector would examine all of them
again and again, and a later full collection would delay every call for as long.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Values for gc.set_threshold. Calls leave few cycles behind, and Python's default of 700 would
#: search for them several times in each turn of a busy loop.
GC_THRESHOLDS = 20_000, 10, 20


@contextmanager
def start_without_gc() -> Iterator[None]:
    """Disable collection inside the block.

    The objects that exist at its end are never examined again, and later ones are examined less
    often.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
    finally:
        if was_enabled:
            gc.enable()
