"""Who calls, and what that one may change: one place that decides it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from podwright.wire import Denied

ANONYMOUS = "anonymous"


class Role(enum.Enum):
    """What a caller may do at most."""

    ADMINISTRATOR = "administrator"  #: everything
    USER = "user"  #: change his own
    READER = "reader"  #: read; an anonymous one changes what is anonymous
    SCHEDULER = "scheduler"  #: change its own


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. name: a user name or `anonymous`. uid: None where nobody vouches for one.

    origin: `unix` or `tcp`.
    """

    name: str
    uid: int | None
    role: Role
    origin: str = "unix"


def may_change(caller: Caller, owner: str) -> bool:
    """Whether the caller may change what belongs to `owner`."""
    if caller.role is Role.ADMINISTRATOR:
        return True
    if caller.role is Role.READER:
        return caller.name == ANONYMOUS == owner
    return caller.name == owner


def check_creator(caller: Caller, asked: str) -> None:
    """Raises Denied for a caller who may own nothing."""
    if caller.role is Role.READER and caller.name != ANONYMOUS:
        raise Denied(
            f"{caller.name} has the reader's role",
            asked=asked,
            would_work="ask an administrator for the user's role",
            caller=caller.name,
        )


def check_change(caller: Caller, owner: str, asked: str) -> None:
    """Raises Denied unless the caller may change what belongs to `owner`."""
    if not may_change(caller, owner):
        raise Denied(
            f"it belongs to {owner}, and you are {caller.name}",
            asked=asked,
            would_work=f"ask {owner} or an administrator to do it",
            owner=owner,
            caller=caller.name,
        )
