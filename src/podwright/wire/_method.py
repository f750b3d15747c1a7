"""The description of a call: its values, rights, repetition, audit entry, and what it reveals.

Each call is described once, by a `Method` beside its values, and `METHODS` has them all. The
`.proto`, the fronts, the check of the caller's role, the client's retries, the events, the
reference page and the tests of roles and of privacy follow from it.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

import msgspec

from podwright.wire._value import Value


class May(enum.Enum):
    """What a role may do with a call."""

    ANY = "any"  #: whoever owns the object
    OWN = "own"  #: on its own objects, or to make one; a list shows only its own
    JOBS = "jobs"  #: in the name of a uid and a job, and on what it made in this way
    NO = "no"


class Rights(NamedTuple):
    """Who may make a call, by role.

    anonymous: a caller on TCP without credentials, where the server is not secure. A secure server
    refuses such callers every call.
    """

    administrator: May
    user: May
    reader: May
    scheduler: May
    anonymous: May


EVERYBODY: Final = Rights(May.ANY, May.ANY, May.ANY, May.ANY, May.ANY)
ADMINISTRATOR: Final = Rights(May.ANY, May.NO, May.NO, May.NO, May.NO)
#: For lists that show callers, administrators excepted, only their own things.
OWN_OBJECTS_ONLY: Final = Rights(May.ANY, May.OWN, May.OWN, May.OWN, May.OWN)
CREATORS: Final = Rights(May.ANY, May.OWN, May.NO, May.JOBS, May.OWN)
#: For the server's queue. A scheduler has a queue of its own.
WAITERS: Final = Rights(May.ANY, May.OWN, May.NO, May.NO, May.OWN)


class Repeat(enum.Enum):
    """Whether a client may repeat a call whose answer was lost."""

    CHANGES_NOTHING = "it changes nothing"
    SAME = "twice has the effect of once"
    REQUEST_ID = "with the same `request_id`"
    WAITER = "with an `id`, or with the same `request_id`"
    NEVER = "no"

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a request of which one must be set, so that the request can be repeated."""
        if self is Repeat.REQUEST_ID:
            return ("request_id",)
        return ("id", "request_id") if self is Repeat.WAITER else ()


class AuditEntry(enum.Enum):
    """What the audit records of a call."""

    NOTHING = "nothing"
    CALL = "the caller, the object and the outcome"
    LEASE = "the caller, the object, the outcome and the lease's id"


class ObjectKind(enum.Enum):
    """The kind of object that a call concerns. Partitions, leases and waiters have an owner."""

    PARTITION = "partition"
    LEASE = "lease"
    WAITER = "waiter"
    MACHINE = "machine"
    AGENT = "agent"
    CLUSTER = "cluster"
    ALLOCATION = "allocation"
    USER = "user"
    QUOTA = "quota"
    SHARE = "share"

    @property
    def owned(self) -> bool:
        """Whether things of this kind have an owner."""
        return self in (ObjectKind.PARTITION, ObjectKind.LEASE, ObjectKind.WAITER)


class About(NamedTuple):
    """Which object a request concerns.

    fields: of the request, `spec.name` for a field of a field; the first that is not empty names
    the object. new: the call makes the object, which has no owner before.
    """

    kind: ObjectKind
    fields: tuple[str, ...] = ("name",)
    new: bool = False


class Method(msgspec.Struct, frozen=True):
    """One call.

    may: the rights by role; by default, administrators only. about: the object; None: the call has
    none. audit: what the events record; None: CALL for a call that changes something, nothing for
    any other. stored: the call needs a store that can be written to. reveals: what an answer or a
    refusal tells of other tenants where everything is private; empty: nothing.
    """

    name: str
    request: type[Value]
    reply: type[Value]
    may: Rights = ADMINISTRATOR
    repeat: Repeat = Repeat.NEVER
    about: About | None = None
    audit: AuditEntry | None = None
    stored: bool = True
    reveals: str = ""

    @property
    def changes(self) -> bool:
        """Whether the call changes something."""
        return self.repeat is not Repeat.CHANGES_NOTHING

    @property
    def function(self) -> str:
        """The name of the controller's function: `ListPartitions` -> `list_partitions`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    @property
    def entry(self) -> AuditEntry:
        """What the audit records of the call."""
        if self.audit is not None:
            return self.audit
        return AuditEntry.CALL if self.changes else AuditEntry.NOTHING

    def repeatable(self, request: Value) -> bool:
        """Return whether this request may be repeated although it may have been carried out."""
        if id_fields := self.repeat.fields:
            return any(getattr(request, field) for field in id_fields)
        return self.repeat is not Repeat.NEVER
