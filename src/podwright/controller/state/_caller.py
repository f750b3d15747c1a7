"""Who calls, and what that one may change: one place that decides it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from podwright.errors import Denied, InvalidRequest

ANONYMOUS = "anonymous"


class Role(enum.Enum):
    """What a caller may do at most."""

    ADMINISTRATOR = "administrator"  #: everything
    USER = "user"  #: change his own
    READER = "reader"  #: read; an anonymous one changes what is anonymous
    SCHEDULER = "scheduler"  #: create in the name of a uid and a job, and change that


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls. name: a user name or `anonymous`. uid: None where nobody vouches for one.

    origin: who vouches: `unix` the kernel, `tcp` a token from there or nobody, `munge`, `key` or
    `certificate` of a user of the server's, `proxy` the site's, on the page.
    """

    name: str
    uid: int | None
    role: Role
    origin: str = "unix"


def may_change(caller: Caller, owner: str) -> bool:
    """Whether the caller may change what belongs to `owner`."""
    if caller.role is Role.ADMINISTRATOR:
        return True
    if caller.role is Role.USER:
        return caller.name == owner
    return caller.name == ANONYMOUS == owner  # a reader changes nothing, a scheduler owns nothing


def check_creator(caller: Caller, action: str) -> None:
    """Raises Denied for a caller who may own nothing."""
    if caller.role is Role.SCHEDULER:
        raise Denied(
            f"{caller.name} has the scheduler's role, which asks in the name of others",
            operation=action,
            would_work="say for whom and for which job: owner, owner_uid, job",
            caller=caller.name,
        )
    if caller.role is Role.READER and caller.name != ANONYMOUS:
        raise Denied(
            f"{caller.name} has the reader's role",
            operation=action,
            would_work="ask an administrator for the user's role",
            caller=caller.name,
        )


def in_name_of(caller: Caller, owner: str, uid: int, job: str, action: str) -> Caller:
    """Whose a new partition will be: the caller's, or where one is named, that owner's.

    Raises Denied: only schedulers and administrators ask for others.
    """
    if not (owner or job or uid != -1):
        return caller
    if caller.role not in (Role.ADMINISTRATOR, Role.SCHEDULER):
        raise Denied(
            f"you are {caller.name}, and only a scheduler asks in the name of others",
            operation=action,
            would_work="leave out owner and job",
            caller=caller.name,
        )
    if not owner or owner == ANONYMOUS or uid < 0:
        raise InvalidRequest(
            "a partition in somebody's name needs his name and his user id", operation=action
        )
    return Caller(name=owner, uid=uid, role=Role.USER, origin=caller.origin)


def check_job(caller: Caller, job: str, action: str) -> None:
    """Raises Denied where a scheduler made it for a job, which alone decides how long it stays."""
    if job and caller.role not in (Role.ADMINISTRATOR, Role.SCHEDULER):
        job_id = job.partition("/")[0].partition(" ")[0].rstrip(",")
        raise Denied(
            f"it belongs to job {job_id} and goes when that ends",
            operation=action,
            would_work=f"scancel {job_id}, or leave the partition as it is",
            job=job,
        )


def check_change(caller: Caller, owner: str, action: str, creator: str = "") -> None:
    """Raises Denied unless the caller may change what belongs to `owner`.

    creator: who made it, which counts for a scheduler.
    """
    if caller.role is Role.SCHEDULER and creator and caller.name == creator:
        return
    if not may_change(caller, owner):
        raise Denied(
            f"it belongs to {owner}, and you are {caller.name}",
            operation=action,
            would_work=f"ask {owner} or an administrator to do it",
            owner=owner,
            caller=caller.name,
        )
