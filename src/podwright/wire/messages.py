"""Podwright's values as the messages of `podwright_v1.proto`, and back, for gRPC.

One mapping serves all of them, by field name. It is derived once for each type from the value's
annotations, so nothing is listed twice. A field whose default is not zero is `optional` in the
.proto, so that leaving it out means the default here, as it does in JSON.

The module stands apart from `podwright.wire`, since it imports protobuf, which local commands never
need.
"""

from __future__ import annotations

import enum
import functools
import json
import re
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from google.protobuf.message import DecodeError, Message

from podwright.errors import InvalidRequest, PodwrightError, ServerBusy
from podwright.wire._generated import podwright_v1_pb2
from podwright.wire._method import Method
from podwright.wire._methods import METHODS
from podwright.wire._value import Value

__all__ = [
    "ACCESS_KEY",
    "ERROR_KEY",
    "PUSHBACK_KEY",
    "SERVICE",
    "USER_KEY",
    "decode",
    "encode",
    "error_metadata",
    "from_message",
    "message_type",
    "method_path",
    "to_message",
]

SERVICE = "podwright.v1.Podwright"
#: Trailing metadata that carries a refusal as JSON (`wire.PodwrightError.to_json`).
ERROR_KEY = "podwright-error-bin"
#: Trailing metadata: milliseconds after which the client may retry (gRPC's retry design, A6,
#: "pushback").
PUSHBACK_KEY = "grpc-retry-pushback-ms"
#: Metadata of a user's calls: name and access key. The names are ours, since V-IPU's are not
#: public.
USER_KEY = "podwright-user-id"
ACCESS_KEY = "podwright-access-key"
#: The most bytes of metadata. Clients drop an answer with more than 8 KiB (gRPC's default).
_ERROR_LIMIT = 4096

V = TypeVar("V", bound=Value)
_Plain = Callable[[Any], Any]


def method_path(name: str) -> str:
    """Return the gRPC path of a call of `wire.METHODS`."""
    return f"/{SERVICE}/{METHODS[name].name}"


def encode(value: Value) -> bytes:
    """Return a value as the bytes of its message.

    Raises wire.InvalidRequest for a number out of range.
    """
    return to_message(value).SerializeToString()


def decode(kind: type[V], data: bytes) -> V:
    """Return the value in the bytes of its message.

    Raises wire.InvalidRequest for malformed bytes.
    """
    try:
        message = message_type(kind).FromString(data)
    except DecodeError:
        raise InvalidRequest(f"these {len(data)} bytes are not a message {kind.__name__}") from None
    return from_message(kind, message)


def to_message(value: Value) -> Message:
    """Return a value as its message. Raises wire.InvalidRequest for a number out of range."""
    kind = type(value)
    try:
        return cast(Message, message_type(kind)(**_plan(kind).plain(value)))
    except ValueError as error:
        raise InvalidRequest(f"{kind.__name__} has a value that cannot travel: {error}") from None


def from_message(kind: type[V], message: Message) -> V:
    """Return the value that a message carries.

    Raises wire.InvalidRequest for a missing part and for an unknown enum number.
    """
    return cast(V, _plan(kind).value(message))


@functools.cache
def message_type(kind: type[Value]) -> Any:
    """Return the message class of a value type, which has the same name in the `.proto`."""
    generated = getattr(podwright_v1_pb2, kind.__name__, None)
    if generated is None:
        from podwright.wire._generated import podwright_agent_v1_pb2  # servers and agents only

        generated = getattr(podwright_agent_v1_pb2, kind.__name__)
    return generated


def error_metadata(error: PodwrightError) -> tuple[tuple[str, bytes | str], ...]:
    """Return trailing metadata with a refusal. A refusal that is too long loses its data."""
    body = error.to_json()
    raw = json.dumps(body, default=str).encode()
    if len(raw) > _ERROR_LIMIT:
        short = {key: text[:600] if isinstance(text, str) else {} for key, text in body.items()}
        raw = json.dumps(short).encode()
    refusal = (ERROR_KEY, raw)
    if not isinstance(error, ServerBusy):
        return (refusal,)
    return refusal, (PUSHBACK_KEY, str(round(error.retry_after_s * 1000)))


class _Field(typing.NamedTuple):
    """One field. out: converts to the message; back: converts from it. presence: leave absent ones
    out."""

    name: str
    out: _Plain | None
    back: _Plain | None
    presence: bool
    required: bool


class _Plan:
    """How one type of value is converted."""

    def __init__(self, kind: type[Value]) -> None:
        self.kind = kind
        self.fields: list[_Field] = []
        for field in msgspec.structs.fields(kind):
            descriptor = message_type(kind).DESCRIPTOR.fields_by_name[field.name]
            out, back = _convert(field.type, descriptor)
            self.fields.append(
                _Field(field.name, out, back, descriptor.has_presence, field.required)
            )

    def plain(self, value: Any) -> dict[str, Any]:
        """Return the arguments of the message's constructor."""
        arguments = {}
        for name, out, _, _, _ in self.fields:
            item = getattr(value, name)
            if item is not None:
                arguments[name] = item if out is None else out(item)
        return arguments

    def value(self, message: Any) -> Value:
        """Return the value that the message carries."""
        arguments = {}
        for name, _, back, presence, required in self.fields:
            if presence and not message.HasField(name):
                if required:
                    raise InvalidRequest(f"{self.kind.__name__} lacks {name}")
                continue
            item = getattr(message, name)
            if back is not None:
                item = back(item)
                if item is None:
                    if required:
                        raise InvalidRequest(f"{self.kind.__name__} lacks {name}")
                    continue
            arguments[name] = item
        return self.kind(**arguments)


@functools.cache
def _plan(kind: type[Value]) -> _Plan:
    return _Plan(kind)


def _convert(kind: Any, descriptor: Any) -> tuple[_Plain | None, _Plain | None]:
    """Return both conversions of one field; None where the item is unchanged."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _convert(next(part for part in inner if part is not type(None)), descriptor)
    if origin is dict:
        return None, dict
    if origin is list:
        out, back = _convert_item(inner[0], descriptor.message_type)
        if out is None or back is None:
            return None, list
        return (
            lambda items: [out(item) for item in items],
            lambda items: [back(item) for item in items],
        )
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum_tables(kind, descriptor.enum_type)
    if isinstance(kind, type) and issubclass(kind, Value):
        return _convert_item(kind, descriptor.message_type)
    return None, None


def _convert_item(kind: Any, message: Any) -> tuple[_Plain, _Plain] | tuple[None, None]:
    """Return both conversions of a message, or of one item of a list."""
    origin = typing.get_origin(kind)
    if origin is tuple:  # one field for each place, in their order
        names = [field.name for field in message.fields]
        return (
            lambda item: dict(zip(names, item, strict=True)),
            lambda item: tuple(getattr(item, name) for name in names),
        )
    if origin is list:  # a list in a list needs a message around it
        (field,) = message.fields
        name = field.name
        out, back = _convert_item(typing.get_args(kind)[0], field.message_type)
        assert out is not None
        assert back is not None
        return (
            lambda items: {name: [out(item) for item in items]},
            lambda item: [back(part) for part in getattr(item, name)],
        )
    if isinstance(kind, type) and issubclass(kind, Value):
        plan = _plan(kind)
        return plan.plain, plan.value
    return None, None


def enum_names(kind: type[enum.Enum], descriptor: Any) -> dict[int, enum.Enum | None]:
    """Return number -> member.

    The .proto puts the enum's own name before each member. The number 0 may be no member.
    """
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper() + "_"
    members = kind.__members__
    return {v.number: members.get(v.name.removeprefix(prefix)) for v in descriptor.values}


def _enum_tables(kind: type[enum.Enum], descriptor: Any) -> tuple[_Plain, _Plain]:
    by_number = enum_names(kind, descriptor)
    numbers = {member: number for number, member in by_number.items() if member is not None}

    def back(number: int) -> enum.Enum | None:
        try:
            return by_number[number]
        except KeyError:
            raise InvalidRequest(
                f"{number} is not a value of {kind.__name__}",
                would_work="choose one of " + ", ".join(member.name for member in numbers),
            ) from None

    return numbers.__getitem__, back


def method_of(path: str) -> Method | None:
    """Return the method that a gRPC path names, or None."""
    service, _, name = path.removeprefix("/").partition("/")
    return METHODS.get(name) if service == SERVICE else None
