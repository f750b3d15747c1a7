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
_MAX_ERROR_BYTES = 4096

V = TypeVar("V", bound=Value)
_FieldConverter = Callable[[Any], Any]


def method_path(call_name: str) -> str:
    """Return the gRPC path of a call of `wire.METHODS`."""
    return f"/{SERVICE}/{METHODS[call_name].name}"


def encode(wire_value: Value) -> bytes:
    """Return a value as the bytes of its message.

    Raises wire.InvalidRequest for a number out of range.
    """
    return to_message(wire_value).SerializeToString()


def decode(value_type: type[V], message_bytes: bytes) -> V:
    """Return the value in the bytes of its message.

    Raises wire.InvalidRequest for malformed bytes.
    """
    try:
        message = message_type(value_type).FromString(message_bytes)
    except DecodeError:
        raise InvalidRequest(
            f"these {len(message_bytes)} bytes are not a message {value_type.__name__}"
        ) from None
    return from_message(value_type, message)


def to_message(wire_value: Value) -> Message:
    """Return a value as its message. Raises wire.InvalidRequest for a number out of range."""
    value_type = type(wire_value)
    try:
        return cast(
            Message, message_type(value_type)(**_value_converter(value_type).plain(wire_value))
        )
    except ValueError as error:
        raise InvalidRequest(
            f"{value_type.__name__} has a value that cannot travel: {error}"
        ) from None


def from_message(value_type: type[V], message: Message) -> V:
    """Return the value that a message carries.

    Raises wire.InvalidRequest for a missing part and for an unknown enum number.
    """
    return cast(V, _value_converter(value_type).value(message))


@functools.cache
def message_type(value_type: type[Value]) -> Any:
    """Return the message class of a value type, which has the same name in the `.proto`."""
    message_class = getattr(podwright_v1_pb2, value_type.__name__, None)
    if message_class is None:
        from podwright.wire._generated import podwright_agent_v1_pb2  # servers and agents only

        message_class = getattr(podwright_agent_v1_pb2, value_type.__name__)
    return message_class


def error_metadata(call_error: PodwrightError) -> tuple[tuple[str, bytes | str], ...]:
    """Return trailing metadata with a refusal. A refusal that is too long loses its data."""
    error_fields = call_error.to_json()
    error_json = json.dumps(error_fields, default=str).encode()
    if len(error_json) > _MAX_ERROR_BYTES:
        shortened_fields = {
            name: field_value[:600] if isinstance(field_value, str) else {}
            for name, field_value in error_fields.items()
        }
        error_json = json.dumps(shortened_fields).encode()
    entry = (ERROR_KEY, error_json)
    if not isinstance(call_error, ServerBusy):
        return (entry,)
    return entry, (PUSHBACK_KEY, str(round(call_error.retry_after_s * 1000)))


class _ConvertedField(typing.NamedTuple):
    """One field. out: converts to the message; back: converts from it. presence: leave absent ones
    out."""

    name: str
    out: _FieldConverter | None
    back: _FieldConverter | None
    presence: bool
    required: bool


class _ValueConverter:
    """How one type of value is converted."""

    def __init__(self, value_type: type[Value]) -> None:
        self.kind = value_type
        self.fields: list[_ConvertedField] = []
        for struct_field in msgspec.structs.fields(value_type):
            field_descriptor = message_type(value_type).DESCRIPTOR.fields_by_name[struct_field.name]
            to_message_part, from_message_part = _field_converters(
                struct_field.type, field_descriptor
            )
            self.fields.append(
                _ConvertedField(
                    struct_field.name,
                    to_message_part,
                    from_message_part,
                    field_descriptor.has_presence,
                    struct_field.required,
                )
            )

    def plain(self, value: Any) -> dict[str, Any]:
        """Return the arguments of the message's constructor."""
        arguments = {}
        for name, convert_to_message, _, _, _ in self.fields:
            field_value = getattr(value, name)
            if field_value is not None:
                arguments[name] = (
                    field_value if convert_to_message is None else convert_to_message(field_value)
                )
        return arguments

    def value(self, wire_message: Any) -> Value:
        """Return the value that the message carries."""
        value_arguments = {}
        for field_name, _, convert_from_message, has_presence, is_required in self.fields:
            if has_presence and not wire_message.HasField(field_name):
                if is_required:
                    raise InvalidRequest(f"{self.kind.__name__} lacks {field_name}")
                continue
            field_value = getattr(wire_message, field_name)
            if convert_from_message is not None:
                field_value = convert_from_message(field_value)
                if field_value is None:
                    if is_required:
                        raise InvalidRequest(f"{self.kind.__name__} lacks {field_name}")
                    continue
            value_arguments[field_name] = field_value
        return self.kind(**value_arguments)


@functools.cache
def _value_converter(value_type: type[Value]) -> _ValueConverter:
    return _ValueConverter(value_type)


def _field_converters(
    field_type: Any, field_descriptor: Any
) -> tuple[_FieldConverter | None, _FieldConverter | None]:
    """Return both conversions of one field; None where the item is unchanged."""
    generic_type, type_arguments = typing.get_origin(field_type), typing.get_args(field_type)
    if generic_type in (typing.Union, types.UnionType):
        return _field_converters(
            next(member for member in type_arguments if member is not type(None)),
            field_descriptor,
        )
    if generic_type is dict:
        return None, dict
    if generic_type is list:
        item_to_message, item_from_message = _item_converters(
            type_arguments[0], field_descriptor.message_type
        )
        if item_to_message is None or item_from_message is None:
            return None, list
        return (
            lambda field_items: [item_to_message(item) for item in field_items],
            lambda field_items: [item_from_message(item) for item in field_items],
        )
    if isinstance(field_type, type) and issubclass(field_type, enum.Enum):
        return _enum_converters(field_type, field_descriptor.enum_type)
    if isinstance(field_type, type) and issubclass(field_type, Value):
        return _item_converters(field_type, field_descriptor.message_type)
    return None, None


def _item_converters(
    item_type: Any, message_descriptor: Any
) -> tuple[_FieldConverter, _FieldConverter] | tuple[None, None]:
    """Return both conversions of a message, or of one item of a list."""
    generic_type = typing.get_origin(item_type)
    if generic_type is tuple:  # one field for each place, in their order
        tuple_field_names = [field.name for field in message_descriptor.fields]
        return (
            lambda item_value: dict(zip(tuple_field_names, item_value, strict=True)),
            lambda item_value: tuple(getattr(item_value, name) for name in tuple_field_names),
        )
    if generic_type is list:  # a list in a list needs a message around it
        (message_field,) = message_descriptor.fields
        field_name = message_field.name
        inner_to_message, inner_from_message = _item_converters(
            typing.get_args(item_type)[0], message_field.message_type
        )
        assert inner_to_message is not None
        assert inner_from_message is not None
        return (
            lambda inner_items: {
                field_name: [inner_to_message(item_value) for item_value in inner_items]
            },
            lambda item_value: [
                inner_from_message(inner_message)
                for inner_message in getattr(item_value, field_name)
            ],
        )
    if isinstance(item_type, type) and issubclass(item_type, Value):
        conversion_plan = _value_converter(item_type)
        return conversion_plan.plain, conversion_plan.value
    return None, None


def enum_member_by_number(
    enum_type: type[enum.Enum], enum_descriptor: Any
) -> dict[int, enum.Enum | None]:
    """Return number -> member.

    The .proto puts the enum's own name before each member. The number 0 may be no member.
    """
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum_type.__name__).upper() + "_"
    member_by_name = enum_type.__members__
    return {
        enum_value.number: member_by_name.get(enum_value.name.removeprefix(prefix))
        for enum_value in enum_descriptor.values
    }


def _enum_converters(
    enum_type: type[enum.Enum], enum_descriptor: Any
) -> tuple[_FieldConverter, _FieldConverter]:
    by_number = enum_member_by_number(enum_type, enum_descriptor)
    number_by_member = {
        enum_member: enum_number
        for enum_number, enum_member in by_number.items()
        if enum_member is not None
    }

    def back(enum_number: int) -> enum.Enum | None:
        try:
            return by_number[enum_number]
        except KeyError:
            raise InvalidRequest(
                f"{enum_number} is not a value of {enum_type.__name__}",
                would_work="choose one of "
                + ", ".join(enum_member.name for enum_member in number_by_member),
            ) from None

    return number_by_member.__getitem__, back
