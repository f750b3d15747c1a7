"""Python's cyclic garbage collector, kept from walking over what a server holds for good.

A start makes millions of objects and hardly a cycle: the collector would look through all of them
again and again, and a full collection later on would hold up every call for as long.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: As gc.set_threshold has them. Calls leave few cycles behind, and Python's own 700 would look
#: for them several times in each turn of a busy loop.
THRESHOLDS = 20_000, 10, 20


@contextmanager
def start_without_collection() -> Iterator[None]:
    """Collect nothing meanwhile; what there is at the end is never looked through again, and
    the rest more seldom."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
    finally:
        if was:
            gc.enable()
