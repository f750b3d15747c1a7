"""The page in a browser: a pod, its queue and its tables, live, and as they were. Says what
a server shows to whom and carries what one does there; HTTP is the front's that serves it."""

from ._backend_protocol import Minutes as Minutes
from ._backend_protocol import PageBackend as PageBackend
from ._backend_protocol import Who as Who
from ._page_http_handler import BODY as BODY
from ._page_http_handler import Page as Page
from ._problems import problems_shown as problems_shown
from ._query_parameters import TableQuery as TableQuery
from ._sessions import Sessions as Sessions
from ._snapshot import DOMAIN_STATES as DOMAIN_STATES
from ._snapshot import EVENTS as EVENTS
from ._snapshot import FOLDED_FROM as FOLDED_FROM
from ._snapshot import TABLE_TOPICS as TABLE_TOPICS
from ._snapshot import Ask as Ask
from ._snapshot import Changes as Changes
from ._snapshot import Snapshot as Snapshot
from ._snapshot import changes as changes
from ._snapshot import domain_item as domain_item
from ._snapshot import take as take
from ._trusted_proxy import USER as USER
from ._trusted_proxy import SiteProxy as SiteProxy
