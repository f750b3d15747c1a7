"""The timeline of a launch: written while it runs, read back, and summarised in sentences.

The modules that read are loaded on first use, since a launch does not need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names
from podwright.timeline._clock_offset import HostClock
from podwright.timeline._trace_writer import LIMIT, OFF, TraceWriter, clock, open_file

if TYPE_CHECKING:
    from podwright.timeline._read_back import (
        Instant,
        Timeline,
        TrackSlice,
        parse_timeline,
        read_timeline,
    )
    from podwright.timeline._time_account import (
        Account,
        Slowest,
        account,
        in_sentences,
        seconds_text,
        size_text,
    )
    from podwright.timeline._trace_file_index import find_trace, note
    from podwright.timeline._trace_page import trace_page
    from podwright.timeline._trace_report import trace_text, trace_values

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
    "find_trace",
    "in_sentences",
    "note",
    "open_file",
    "parse_timeline",
    "read_timeline",
    "seconds_text",
    "size_text",
    "trace_page",
    "trace_text",
    "trace_values",
]
#: Each module, and the names that come from it.
_LATER = {
    "_time_account": (
        *("Account", "Slowest", "account", "in_sentences", "seconds_text", "size_text"),
    ),
    "_trace_file_index": ("find_trace", "note"),
    "_trace_page": ("trace_page",),
    "_trace_report": ("trace_text", "trace_values"),
    "_read_back": ("Instant", "Timeline", "TrackSlice", "parse_timeline", "read_timeline"),
}

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, _LATER)
