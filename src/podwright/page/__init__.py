"""The page in a browser: a pod, its waiting line and its tables, live, and as they were. Says what
a server shows to whom and carries what one does there; HTTP is the front's that serves it."""

from podwright.page._behind import Server, Who
from podwright.page._live import Live
from podwright.page._minute import TOPICS as MINUTE_TOPICS
from podwright.page._page import BODY, Page
from podwright.page._past import KEEP, MOST, Past, Writer
from podwright.page._sessions import Sessions
from podwright.page._snapshot import Snapshot, changes, take

__all__ = [
    "BODY",
    "KEEP",
    "MINUTE_TOPICS",
    "MOST",
    "Live",
    "Page",
    "Past",
    "Server",
    "Sessions",
    "Snapshot",
    "Who",
    "Writer",
    "changes",
    "take",
]
