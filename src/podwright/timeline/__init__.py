"""A launch as a timeline: written as it goes on, read back, and told in words.

What reads is loaded when it is asked for: a launch has no use for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.timeline._clocks import HostClock
from podwright.timeline._trace_writer import LIMIT, OFF, TraceWriter, clock, open_file

if TYPE_CHECKING:
    from podwright.timeline._account import Account, Slowest, account, in_sentences
    from podwright.timeline._read_back import (
        Instant,
        Timeline,
        TrackSlice,
        parse_timeline,
        read_timeline,
    )

__all__ = [
    "LIMIT",
    "OFF",
    "Account",
    "HostClock",
    "Instant",
    "Slowest",
    "Timeline",
    "TraceWriter",
    "TrackSlice",
    "account",
    "clock",
    "in_sentences",
    "open_file",
    "parse_timeline",
    "read_timeline",
]
_LATER = {
    "_account": ("Account", "Slowest", "account", "in_sentences"),
    "_read_back": ("Instant", "Timeline", "TrackSlice", "parse_timeline", "read_timeline"),
}


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _LATER.items():
        if name in names:
            return getattr(importlib.import_module(f"podwright.timeline.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
