"""What a pod was like, minute by minute: made of what a page shows, kept in a store's history."""

from podwright.history._minute_snapshot import TOPICS
from podwright.history._pod_history import KEEP, MOST, Past, Writer

__all__ = ["KEEP", "MOST", "TOPICS", "Past", "Writer"]
