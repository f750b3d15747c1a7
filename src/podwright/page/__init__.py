"""The page in a browser: a pod, its queue and its tables, live, and as they were. Says what
a server shows to whom and carries what one does there; HTTP is the front's that serves it."""

from podwright.page._backend_protocol import Minutes, PageBackend, Who
from podwright.page._page_http_handler import BODY, Page
from podwright.page._query_parameters import TableQuery
from podwright.page._sessions import Sessions
from podwright.page._snapshot import (
    DOMAIN_STATES,
    EVENTS,
    FOLDED_FROM,
    TABLE_TOPICS,
    Ask,
    Changes,
    Snapshot,
    changes,
    domain_item,
    problems_shown,
    take,
)
from podwright.page._trusted_proxy import USER, SiteProxy

__all__ = [
    "BODY",
    "DOMAIN_STATES",
    "EVENTS",
    "FOLDED_FROM",
    "TABLE_TOPICS",
    "USER",
    "Ask",
    "Changes",
    "Minutes",
    "Page",
    "PageBackend",
    "Sessions",
    "SiteProxy",
    "Snapshot",
    "TableQuery",
    "Who",
    "changes",
    "domain_item",
    "problems_shown",
    "take",
]
