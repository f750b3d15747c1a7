"""What the words of `vipu-admin` share: one call with a typed answer, and what is printed of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TypeVar

from podwright.cli import _json
from podwright.client import Client
from podwright.errors import NotFound
from podwright.wire import (
    AgentInfo,
    ListRequest,
    UserInfo,
    UserList,
    Value,
)

_V = TypeVar("_V", bound=Value)
_N = TypeVar("_N", AgentInfo, UserInfo)


def call(client: Client, method: str, request: Value, reply: type[_V]) -> _V:
    """One call, whose answer is of that type."""
    answer = client.call(method, request)
    assert isinstance(answer, reply)
    return answer


def names(text: str) -> list[str]:
    """`a,b,c` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def users(client: Client) -> list[UserInfo]:
    """All users."""
    return call(client, "ListUsers", ListRequest(), UserList).users


def one_of(what: str, found: Sequence[_N], arguments: argparse.Namespace) -> _N:
    """The one that the words name. Raises NotFound."""
    for one in found:
        if one.name == arguments.name:
            return one
    have = ", ".join(one.name for one in found[:8]) or "none"
    raise NotFound(
        f"there is no {what} {arguments.name}",
        asked=f"get {what} {arguments.name}",
        would_work=f"there are: {have}",
    )


def success(what: str, value: object, arguments: argparse.Namespace) -> int:
    """V-IPU's line for what was done, or its JSON. Returns exit code 0."""
    print(_json.text(value) if wants_json(arguments) else f"{what}: success.")
    return 0


def show(arguments: argparse.Namespace, value: object, text: Callable[[], str]) -> int:
    """What was found, as text or JSON. Returns exit code 0."""
    print(_json.text(value) if wants_json(arguments) else text())
    return 0


def wants_json(arguments: argparse.Namespace) -> bool:
    """Is JSON wanted?"""
    return bool(getattr(arguments, "json", False))
