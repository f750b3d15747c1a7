"""Python's cyclic garbage collector, kept from walking over what a server holds for good.

A start makes millions of objects and hardly a cycle: the collector would look through all of them
again and again, and a full collection later on would hold up every call for as long.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def start_without_collection() -> Iterator[None]:
    """Collect nothing meanwhile; what there is at the end is never looked through again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was:
            gc.enable()
