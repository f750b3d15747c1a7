"""The page in a browser: a pod, its waiting line and its tables, live. Says what a server shows to
whom and carries what one does there; HTTP is the front's that serves it."""

from podwright.page._live import Live
from podwright.page._page import BODY, Page, Server, Who
from podwright.page._sessions import Sessions

__all__ = ["BODY", "Live", "Page", "Server", "Sessions", "Who"]
