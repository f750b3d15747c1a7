"""Every refusal, as a type that carries data.

PodwrightError
├── InvalidRequest      what was asked breaks a rule              INVALID_ARGUMENT
├── NotFound            no such partition, lease, cluster …       NOT_FOUND
├── AlreadyExists       the name is taken                         ALREADY_EXISTS
├── NoCapacity          legal, but not free now                   RESOURCE_EXHAUSTED
├── Held                somebody holds a lease on it              FAILED_PRECONDITION
├── WrongState          not possible in this state                FAILED_PRECONDITION
├── Denied              this caller may not                       PERMISSION_DENIED
├── Unauthenticated     we do not know this caller                UNAUTHENTICATED
├── Fenced              an old epoch: the lease or server is over ABORTED
├── Unavailable         the server cannot be reached or is ending UNAVAILABLE
├── TimedOut            the answer took too long                  DEADLINE_EXCEEDED
├── LaunchFailed        a launch did not end well
│   └── InstanceFailed  its exception cannot come home as it is
├── PythonMismatch      a host has another Python than a function was sent from
├── NotPicklable        a function cannot be sent (an InvalidRequest)
└── Internal            our fault                                 INTERNAL

Each says what was asked, what stands in the way, and what would work; the sentence is made
here and nowhere else.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PodwrightError(Exception):
    """Base of all refusals. The three parts are sentences without a full stop; `data` is JSON."""

    code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1

    def __init__(self, problem: str, *, would_work: str = "", asked: str = "", **data: Any) -> None:
        self.problem = problem
        self.would_work = would_work
        self.asked = asked
        self.data = data
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The whole refusal as one line."""
        parts = [p.rstrip(".") for p in (self.asked, self.problem) if p]
        head = ": ".join(parts)
        return f"{head}. {self.would_work.rstrip('.')}." if self.would_work else f"{head}."

    def to_json(self) -> dict[str, Any]:
        """The refusal as it travels. Inverse of `error_from_json`."""
        return {
            "code": self.code,
            "type": type(self).__name__,
            "message": self.message,
            "asked": self.asked,
            "problem": self.problem,
            "would_work": self.would_work,
            "data": self.data,
        }


class InvalidRequest(PodwrightError):
    """What was asked breaks a rule; it can never work as asked."""

    code = "INVALID_ARGUMENT"
    exit_code = 2


class NotFound(PodwrightError):
    """There is no such thing, or the caller may not know of it."""

    code = "NOT_FOUND"


class AlreadyExists(PodwrightError):
    """The name is taken."""

    code = "ALREADY_EXISTS"


class NoCapacity(PodwrightError):
    """The request is legal, but what it needs is not free now."""

    code = "RESOURCE_EXHAUSTED"
    exit_code = 75


class Held(PodwrightError):
    """Somebody else holds it. `data["holder"]` names them."""

    code = "FAILED_PRECONDITION"
    exit_code = 75


class WrongState(PodwrightError):
    """Not possible in the state that it is in."""

    code = "FAILED_PRECONDITION"


class Denied(PodwrightError):
    """This caller may not do that."""

    code = "PERMISSION_DENIED"


class Unauthenticated(PodwrightError):
    """The server does not know who calls."""

    code = "UNAUTHENTICATED"


class Fenced(PodwrightError):
    """The lease or the server that asks is over: its epoch is old."""

    code = "ABORTED"


class Unavailable(PodwrightError):
    """The server cannot be reached, or is ending."""

    code = "UNAVAILABLE"
    exit_code = 69


class TimedOut(PodwrightError):
    """The answer took longer than the caller would wait."""

    code = "DEADLINE_EXCEEDED"
    exit_code = 69


class LaunchFailed(PodwrightError):
    """The launch did not end well. `data`: `exit_code`, poprun's, and `log`, its last words."""


class InstanceFailed(LaunchFailed):
    """A function did not return. `data`: `instance`, `host`, `type`, `traceback`."""


class PythonMismatch(PodwrightError):
    """Two Pythons that do not read each other's functions. `data`: `host`, `here`, `there`."""

    exit_code = 69


class NotPicklable(InvalidRequest):
    """What should travel cannot: a lock, an open file, a connection."""


class Internal(PodwrightError):
    """A fault of ours."""


_BY_NAME: dict[str, type[PodwrightError]] = {
    kind.__name__: kind
    for kind in (
        InvalidRequest,
        NotFound,
        AlreadyExists,
        NoCapacity,
        Held,
        WrongState,
        Denied,
        Unauthenticated,
        Fenced,
        Unavailable,
        TimedOut,
        Internal,
        LaunchFailed,
        InstanceFailed,
        PythonMismatch,
        NotPicklable,
    )
}
_BY_CODE: dict[str, type[PodwrightError]] = {
    **{kind.code: kind for kind in reversed(_BY_NAME.values())},
    "FAILED_PRECONDITION": WrongState,
}


def error_from_json(body: dict[str, Any]) -> PodwrightError:
    """The refusal that travelled; unknown types become the type of their code, or Internal."""
    kind = _BY_NAME.get(body.get("type", "")) or _BY_CODE.get(body.get("code", ""), Internal)
    return kind(
        body.get("problem") or body.get("message") or "the server gave no reason",
        would_work=body.get("would_work", ""),
        asked=body.get("asked", ""),
        **body.get("data", {}),
    )


def error_from_code(code: str, message: str) -> PodwrightError:
    """A refusal of a server that is not ours: a status code and a text."""
    return _BY_CODE.get(code, Internal)(message.rstrip(".") or code)
