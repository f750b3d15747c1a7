"""What a pod was like, minute by minute: what changed in each, kept in a store's history."""

from podwright.history._minute_snapshot import kept_items, measured, sums_of
from podwright.history._pod_history import KEEP, KEEP_ROWS, MOST, Past, Writer, encode_part

__all__ = [
    "KEEP",
    "KEEP_ROWS",
    "MOST",
    "Past",
    "Writer",
    "encode_part",
    "kept_items",
    "measured",
    "sums_of",
]
