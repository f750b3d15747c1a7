"""What a pod was like, minute by minute: what changed in each, kept in a store's history."""

from ._minute_snapshot import kept_items as kept_items
from ._minute_snapshot import measured as measured
from ._minute_snapshot import sums_of as sums_of
from ._pod_history import KEEP as KEEP
from ._pod_history import KEEP_ROWS as KEEP_ROWS
from ._pod_history import MOST as MOST
from ._pod_history import Past as Past
from ._pod_history import Writer as Writer
from ._pod_history import encode_part as encode_part
