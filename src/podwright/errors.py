"""Every refusal, as a type that carries data.

PodwrightError
├── InvalidRequest      the request breaks a rule              INVALID_ARGUMENT
├── NotFound            no such partition, lease, cluster …    NOT_FOUND
├── AlreadyExists       the name is taken                      ALREADY_EXISTS
├── NoCapacity          legal, but not free now                RESOURCE_EXHAUSTED
├── Held                somebody holds a lease on it           FAILED_PRECONDITION
├── WrongState          its state does not allow it            FAILED_PRECONDITION
├── Denied              the caller has no permission           PERMISSION_DENIED
├── Unauthenticated     the caller is not known                UNAUTHENTICATED
├── Fenced              the lease or server is over: old epoch ABORTED
├── Unavailable         the server cannot be reached, or ends  UNAVAILABLE
│   ├── ServerBusy      the server has no place for another connection
│   └── FieldNotKnown   Slurm does not show a field that is needed
├── TimedOut            the answer took too long               DEADLINE_EXCEEDED
├── LaunchFailed        a launch failed
│   └── InstanceFailed  an instance failed; its exception cannot be sent as it is
├── PythonMismatch      a host has another Python than the sender of a function
├── NotPicklable        a function cannot be sent (an InvalidRequest)
└── Internal            a defect of Podwright itself           INTERNAL

Each refusal names the request, the obstacle, and what would work. Its sentence is made in this
module only.
"""

from __future__ import annotations

from typing import Any, ClassVar

#: Commands with which a hint may begin. A command keeps its lower-case letter.
_COMMAND_NAMES = frozenset((
    "apt", "chmod", "git", "kubectl", "openssl", "pip", "podwright", "poprun", "rsync", "sacct",
    "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "ssh",
    "systemctl", "vipu",
))  # fmt: skip


def as_sentence(text: str) -> str:
    """Return a text as a sentence: with a capital letter, unless it begins with a name, and with a
    full stop.
    """
    word = text.split(" ", 1)[0].rstrip(",;:")
    if word.isalpha() and word not in _COMMAND_NAMES:
        text = text[:1].upper() + text[1:]
    return text if text.endswith("?") else f"{text.rstrip('.')}."


class PodwrightError(Exception):
    """The base of all refusals.

    operation: what was attempted. problem: what stands in the way. would_work: what to do instead.
    All three are without a full stop, and only the problem is never empty. data: values that JSON
    can carry. The wire calls the operation `asked`.
    """

    code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1

    def __init__(
        self, problem: str, *, would_work: str = "", operation: str = "", **data: Any
    ) -> None:
        self.problem = problem
        self.would_work = would_work
        self.operation = operation
        self.data = data
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """Return the whole refusal as one line."""
        clauses = [clause.rstrip(".") for clause in (self.operation, self.problem) if clause]
        text = ": ".join(clauses)
        text = text if text.endswith("?") else f"{text}."
        return f"{text} {as_sentence(self.would_work)}" if self.would_work else text

    def to_json(self) -> dict[str, Any]:
        """Return the refusal as a JSON object for the wire. `error_from_json` is the inverse."""
        return {
            "code": self.code,
            "type": type(self).__name__,
            "message": self.message,
            "asked": self.operation,
            "problem": self.problem,
            "would_work": self.would_work,
            "data": self.data,
        }


class InvalidRequest(PodwrightError):
    """The request breaks a rule and can never be granted as it is."""

    code = "INVALID_ARGUMENT"
    exit_code = 2


class NotFound(PodwrightError):
    """The thing does not exist, or the caller may not know that it exists."""

    code = "NOT_FOUND"


class AlreadyExists(PodwrightError):
    """The name is taken."""

    code = "ALREADY_EXISTS"


class NoCapacity(PodwrightError):
    """The request is legal, but what it needs is not free now."""

    code = "RESOURCE_EXHAUSTED"
    exit_code = 75


class Held(PodwrightError):
    """Somebody else holds a lease on the thing. `data["holder"]` names them."""

    code = "FAILED_PRECONDITION"
    exit_code = 75


class WrongState(PodwrightError):
    """The operation is not possible in the present state of the thing."""

    code = "FAILED_PRECONDITION"


class Denied(PodwrightError):
    """This caller has no permission for the operation."""

    code = "PERMISSION_DENIED"


class Unauthenticated(PodwrightError):
    """The server does not know who calls."""

    code = "UNAUTHENTICATED"


class Fenced(PodwrightError):
    """The lease or the server that makes the call is over: its epoch is old."""

    code = "ABORTED"


class Unavailable(PodwrightError):
    """The server cannot be reached, or it is shutting down."""

    code = "UNAVAILABLE"
    exit_code = 69


class ServerBusy(Unavailable):
    """The server has no place for another connection now. It has done nothing of the call."""

    @classmethod
    def of(cls, retry_after_s: int) -> ServerBusy:
        """Return the refusal of a server that may be called again after `retry_after_s` seconds."""
        return cls(
            f"the server is busy, try again in {retry_after_s} s", retry_after_s=retry_after_s
        )

    @property
    def retry_after_s(self) -> float:
        """The number of seconds after which a call may find a place."""
        return max(0.1, float(self.data.get("retry_after_s", 1)))


class FieldNotKnown(Unavailable):
    """Slurm does not show a field.

    `data["field"]` names it, `data["record"]` the record without it.
    """

    @classmethod
    def of(cls, field: str, record: str, reason: str = "") -> FieldNotKnown:
        """Return the error for a field that a record, such as `node n1`, lacks."""
        return cls(
            f"not known: {field} ({record}{': ' + reason if reason else ''})",
            would_work="look whether this release of Slurm names the field otherwise",
            field=field,
            record=record,
        )

    @property
    def field(self) -> str:
        """The name of the missing field."""
        return str(self.data.get("field", ""))

    @property
    def record(self) -> str:
        """The record that lacks the field, in words."""
        return str(self.data.get("record", ""))


class TimedOut(PodwrightError):
    """The answer did not come within the time that the caller allowed."""

    code = "DEADLINE_EXCEEDED"
    exit_code = 69


class LaunchFailed(PodwrightError):
    """The launch failed.

    `data["exit_code"]` is poprun's exit code, `data["log"]` the end of its log.
    """


class InstanceFailed(LaunchFailed):
    """A function raised or did not return. `data`: `instance`, `host`, `type`, `traceback`."""


class PythonMismatch(PodwrightError):
    """Two Pythons cannot read each other's functions. `data`: `host`, `here`, `there`."""

    exit_code = 69


class NotPicklable(InvalidRequest):
    """The function or its arguments hold a thing that cannot be pickled, such as an open file."""


class Internal(PodwrightError):
    """A defect of Podwright itself."""


_ERRORS_BY_NAME: dict[str, type[PodwrightError]] = {
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
        ServerBusy,
        FieldNotKnown,
        TimedOut,
        Internal,
        LaunchFailed,
        InstanceFailed,
        PythonMismatch,
        NotPicklable,
    )
}
_ERRORS_BY_CODE: dict[str, type[PodwrightError]] = {
    **{kind.code: kind for kind in reversed(_ERRORS_BY_NAME.values())},
    "FAILED_PRECONDITION": WrongState,
}


def error_from_json(body: dict[str, Any]) -> PodwrightError:
    """Return the refusal that `to_json` encoded.

    A type that is not known becomes the type of its code, and a code that is not known becomes
    Internal.
    """
    error_type = _ERRORS_BY_NAME.get(body.get("type", "")) or _ERRORS_BY_CODE.get(
        body.get("code", ""), Internal
    )
    return error_type(
        body.get("problem") or body.get("message") or "the server gave no reason",
        would_work=body.get("would_work", ""),
        operation=body.get("asked", ""),
        **body.get("data", {}),
    )


def error_from_code(code: str, message: str) -> PodwrightError:
    """Return the refusal of a server that is not Podwright's, from its status code and its text."""
    return _ERRORS_BY_CODE.get(code, Internal)(message.rstrip(".") or code)
