"""What a call is: its values, who may make it, and whether it may be made twice.

Each call is described once, by a `Method` beside its values; `METHODS` has them all. The `.proto`,
the fronts, the check of the caller's role, the client's retries, the events and the reference page
follow from it.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

import msgspec

from podwright.wire._value import Value


class May(enum.Enum):
    """What a role may do with a call."""

    ANY = "any"  #: whosever the object is
    OWN = "own"  #: on its own objects, or to make one; a list shows its own alone
    JOBS = "jobs"  #: in the name of a uid and a job, and on what it made so
    NO = "no"


class Rights(NamedTuple):
    """Who may make a call. anonymous: a caller on TCP who shows nothing, where the server is not
    secure; a secure one answers none of those."""

    administrator: May
    user: May
    reader: May
    scheduler: May
    anonymous: May


EVERYBODY: Final = Rights(May.ANY, May.ANY, May.ANY, May.ANY, May.ANY)
ADMINISTRATOR: Final = Rights(May.ANY, May.NO, May.NO, May.NO, May.NO)
#: Lists that show others what is theirs.
THEIR_OWN: Final = Rights(May.ANY, May.OWN, May.OWN, May.OWN, May.OWN)
CREATORS: Final = Rights(May.ANY, May.OWN, May.NO, May.JOBS, May.OWN)
#: The waiting queue: a scheduler has one of its own.
WAITERS: Final = Rights(May.ANY, May.OWN, May.NO, May.NO, May.OWN)


class Repeat(enum.Enum):
    """Whether a client whose answer got lost may make a call again."""

    READS = "it changes nothing"
    SAME = "twice has the effect of once"
    REQUEST_ID = "with the same `request_id`"
    ID = "with an `id`"
    NEVER = "no"


class Method(msgspec.Struct, frozen=True):
    """One call.

    may: by role; administrators alone where nothing is said. audited: a change of its kind stands
    in the events. stored: it needs a store that can be written to.
    """

    name: str
    request: type[Value]
    reply: type[Value]
    may: Rights = ADMINISTRATOR
    repeat: Repeat = Repeat.NEVER
    audited: bool = True
    stored: bool = True

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.repeat is not Repeat.READS

    @property
    def function(self) -> str:
        """The method of the controller that does it: `ListPartitions` -> `list_partitions`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    def repeatable(self, request: Value) -> bool:
        """Whether this request does no harm when it is made again, although it may be done."""
        if self.repeat in (Repeat.REQUEST_ID, Repeat.ID):
            return bool(getattr(request, self.repeat.name.lower()))
        return self.repeat is not Repeat.NEVER
