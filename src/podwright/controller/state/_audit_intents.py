"""Who asked for what, in the commit that makes the change.

A call that the audit records opens an intent before it begins. The first commit that the call
causes carries the intent's record with it (`Journal.commit` asks here, as it asks `_request_ids`),
so a crash at any instant leaves both the change and who wanted it, or neither. A call that changes
nothing, because it is refused or was done before, never writes its intent.

The intent is found by a context variable, which every task that the call starts inherits. A task
that works for somebody else opens its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from podwright.controller.state._caller import Caller
from podwright.store import Change, Put


class Intent:
    """A call under way. about: its object. owner: whose that is.

    number: of its record, once that is written, else 0. closed: how the call ended is known.
    """

    __slots__ = ("_write", "about", "action", "caller", "closed", "number", "owner")

    def __init__(
        self,
        make_put: Callable[[Intent], Put],
        caller: Caller,
        action: str,
        about: str,
        owner: str,
    ) -> None:
        self._write = make_put
        self.caller, self.action, self.about, self.owner = caller, action, about, owner
        self.number = 0
        self.closed = False

    def added(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes of a commit, and with the first ones the record of the intent."""
        if self.number or self.closed or not changes:
            return changes
        return [*changes, self._write(self)]


#: The intent whose effect is what this task commits, or one that it starts.
CURRENT: ContextVar[Intent | None] = ContextVar("intent", default=None)


def with_intent(changes: Sequence[Change]) -> Sequence[Change]:
    """The changes, and with them the intent that they are the effect of, if there is one."""
    intent = CURRENT.get()
    return changes if intent is None else intent.added(changes)


@contextmanager
def intent_scope(intent: Intent) -> Iterator[Intent]:
    """What is committed inside, by this task or one that it starts, is the intent's effect."""
    token = CURRENT.set(intent)
    try:
        yield intent
    finally:
        CURRENT.reset(token)
