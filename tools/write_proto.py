"""Writes `podwright_v1.proto` from the values and calls of `podwright.wire`.

What has a number keeps it: the file that is there is read first. A new field gets the next number,
a new whole number is an int64, and a field that has gone leaves its number and name reserved.
"""

from __future__ import annotations

import enum
import re
import textwrap
import types
import typing
from collections.abc import Iterable
from typing import Any

import msgspec

from podwright.wire import METHODS, Value

HEAD = """\
// What Podwright offers beyond the vendor's protocol, for programs in any language.
//
// `make proto` writes this file from the values in podwright/wire. `optional` marks fields whose
// default is not zero: leaving them out means the default that is named beside them. Enums carry
// the numbers of the V-IPU 1.18 protocol.
//
// Lists come in pages: ask again with `page_token` set to the answer's `next_page_token` until
// that is empty.
//
// A refusal is a standard status code, a sentence, and in the trailing metadata
// `podwright-error-bin` the same as JSON: code, type, message, asked, problem, would_work, data.
syntax = "proto3";

package podwright.v1;
"""
_SCALARS = {bool: "bool", int: "int64", float: "double", str: "string"}
#: Messages around what a list cannot hold by itself: name, what it is, its only or its two fields.
_PAIR = (
    "DevicePlace",
    "A device by its place in the cluster.",
    ("int32 domain", "int32 offset"),
)
_LIST = ("Gcd", "The devices of one GCD, in routing order.", ("repeated DeviceRef devices",))


class Known:
    """The numbers that the file has given out already. file: its descriptor, as a message."""

    def __init__(self, file: Any) -> None:
        self.messages = {message.name: message for message in file.message_type}
        self.enums = {kind.name: {v.name: v.number for v in kind.value} for kind in file.enum_type}

    def field(self, message: str, name: str) -> Any:
        """The field of this name that the message has, or None."""
        found = self.messages.get(message)
        return next((f for f in found.field if f.name == name), None) if found else None

    def reserved(self, message: str) -> dict[str, int]:
        """Names that the message no longer has, with their numbers."""
        found = self.messages.get(message)
        if found is None:
            return {}
        numbers = [n for part in found.reserved_range for n in range(part.start, part.end)]
        return dict(zip(found.reserved_name, numbers, strict=True))


class NameTaken(Exception):
    """Two things of the file have one name."""


def _check_names(values: Iterable[type], enums: Iterable[type]) -> None:
    """Raises NameTaken for a name that is taken twice: one scope has them all, but calls, and a
    call's name must differ too, since every language has its calls beside its messages."""
    taken: dict[str, str] = {name: f"the message {name}" for name, *_ in (_PAIR, _LIST)}
    named = [
        (kind.__name__, f"the value {kind.__qualname__} of {kind.__module__}") for kind in values
    ]
    named += [
        (kind.__name__, f"the enumeration {kind.__name__} of {kind.__module__}") for kind in enums
    ]
    named += [(name, f"the call {name}") for name in METHODS]
    named.append(("Podwright", "the service Podwright"))
    for name, what in named:
        if name in taken:
            raise NameTaken(f"{what} is called like {taken[name]}: give one of them another name")
        taken[name] = what


def proto(known: Known) -> str:
    """The whole file. Raises NameTaken."""
    kinds = [m for method in METHODS.values() for m in (method.request, method.reply)]
    values: dict[type[Value], None] = {}
    enums: dict[type[enum.Enum], None] = {}
    for kind in kinds:
        _visit(kind, values, enums)
    _check_names(values, enums)
    parts = [HEAD, _service()]
    parts += [_enum(kind, known) for kind in enums]
    parts += [_helper(*helper) for helper in (_PAIR, _LIST)]
    parts += [_message(kind, known) for kind in values]
    return "\n".join(parts)


def _visit(kind: Any, values: dict[Any, None], enums: dict[Any, None]) -> None:
    for part in typing.get_args(kind):
        _visit(part, values, enums)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        enums[kind] = None
    if isinstance(kind, type) and issubclass(kind, Value) and kind not in values:
        for field in msgspec.structs.fields(kind):
            _visit(field.type, values, enums)
        values[kind] = None


def _service() -> str:
    calls = [
        f"  rpc {m.name}({m.request.__name__}) returns ({m.reply.__name__});"
        for m in METHODS.values()
    ]
    return "service Podwright {\n" + "\n".join(calls) + "\n}\n"


def _enum(kind: type[enum.Enum], known: Known) -> str:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper()
    numbers = known.enums.get(kind.__name__, {})
    names = [f"{prefix}_{member.name}" for member in kind]
    if numbers.get(f"{prefix}_UNSPECIFIED", 0 if "DEFAULT" not in kind.__members__ else None) == 0:
        names.insert(0, f"{prefix}_UNSPECIFIED")
    lines, last = [], -1
    for name in names:
        last = numbers.get(name, last + 1)
        lines.append(f"  {name} = {last};")
    return f"{_comment(kind)}enum {kind.__name__} {{\n" + "\n".join(lines) + "\n}\n"


def _helper(name: str, about: str, fields: tuple[str, ...]) -> str:
    lines = [f"  {field} = {number};" for number, field in enumerate(fields, 1)]
    return f"// {about}\nmessage {name} {{\n" + "\n".join(lines) + "\n}\n"


def _message(kind: type[Value], known: Known) -> str:
    name = kind.__name__
    fields = msgspec.structs.fields(kind)
    message = known.messages.get(name)
    reserved = known.reserved(name)
    taken = {f.name: f.number for f in message.field} if message else {}
    reserved |= {n: taken[n] for n in taken.keys() - {field.name for field in fields}}
    last = max((*taken.values(), *reserved.values()), default=0)
    lines = []
    if reserved:
        ordered = sorted(reserved.items(), key=lambda pair: pair[1])
        lines.append(f"  reserved {', '.join(str(number) for _, number in ordered)};")
        lines.append("  reserved " + ", ".join(f'"{gone}"' for gone, _ in ordered) + ";")
    for field in fields:
        if (number := taken.get(field.name)) is None:
            number = last = last + 1
        lines.append("  " + _field(field, known.field(name, field.name), number))
    inside = "\n".join(lines)
    return f"{_comment(kind)}message {name} {{" + (f"\n{inside}\n" if lines else "") + "}\n"


def _field(field: Any, was: Any, number: int) -> str:
    kind, optional = field.type, False
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
        optional = kind in _SCALARS
    note = ""
    if not field.required and kind in _SCALARS and field.default != kind():
        optional = True
        if field.default is not None:
            note = f"  // {msgspec.json.encode(field.default).decode()}"
    return f"{'optional ' * optional}{_type(kind, was)} {field.name} = {number};{note}"


def _type(kind: Any, was: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict:
        return f"map<{', '.join(_SCALARS[part] for part in inner)}>"
    if origin is list:
        nested = typing.get_origin(inner[0]) is list
        return f"repeated {_LIST[0] if nested else _type(inner[0], was)}"
    if origin is tuple:
        return _PAIR[0]
    if kind is int and was is not None and was.type == was.TYPE_INT32:
        return "int32"
    return _SCALARS.get(kind) or str(kind.__name__)


def _comment(kind: type) -> str:
    parts = [" ".join(part.split()) for part in (kind.__doc__ or "").split("\n\n")]
    lines = "\n\n".join("\n".join(textwrap.wrap(part, 96)) for part in parts).splitlines()
    return "".join(f"// {line}".rstrip() + "\n" for line in lines)
