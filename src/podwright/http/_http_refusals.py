"""Refusals as replies: the one table of statuses, and the one form."""

from __future__ import annotations

import msgspec

from podwright.errors import PodwrightError
from podwright.http._listener_state import Reply

#: A refusal's code -> HTTP status.
STATUS_BY_CODE = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "FAILED_PRECONDITION": 412,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def refused(error: PodwrightError, *headers: tuple[bytes, bytes]) -> Reply:
    """Return an error as a reply."""
    body = msgspec.json.encode(error.to_json(), enc_hook=str)
    return Reply(STATUS_BY_CODE.get(error.code, 500), body, headers=headers)


def complain(status: int, problem: str) -> bytes:
    """Return a refusal of HTTP itself as a refusal's JSON."""
    code = {404: "NOT_FOUND", 500: "INTERNAL"}.get(status, "INVALID_ARGUMENT")
    if status in (413, 431, 503):
        code = "RESOURCE_EXHAUSTED"
    return msgspec.json.encode({"code": code, "message": f"{problem}.", "problem": problem})


def refusal(status: int, problem: str, *headers: tuple[bytes, bytes]) -> Reply:
    """Return a refusal of HTTP itself as a reply."""
    return Reply(status, complain(status, problem), headers=headers)
