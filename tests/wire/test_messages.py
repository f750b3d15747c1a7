"""Values and messages are held against each other field by field, so that they cannot drift."""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.generate_wire import generate, proto_text

from podwright import wire
from podwright.wire import METHODS, messages
from podwright.wire._generated import podwright_v1_pb2

ROOT = Path(__file__).parents[2]


def _values() -> list[type[wire.Value]]:
    """Every value that travels over gRPC: those of METHODS and their parts."""
    found: dict[type[wire.Value], None] = {}

    def visit(kind: Any) -> None:
        for part in typing.get_args(kind):
            visit(part)
        if isinstance(kind, type) and issubclass(kind, wire.Value) and kind not in found:
            found[kind] = None
            for field in msgspec.structs.fields(kind):
                visit(field.type)

    for method in METHODS.values():
        visit(method.request)
        visit(method.reply)
    return list(found)


VALUES = _values()


def _enums() -> set[type[enum.Enum]]:
    return {
        field.type
        for kind in VALUES
        for field in msgspec.structs.fields(kind)
        if isinstance(field.type, type) and issubclass(field.type, enum.Enum)
    }


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_each_value_has_its_message_with_the_same_fields(kind: type[wire.Value]) -> None:
    descriptor = messages.message_type(kind).DESCRIPTOR
    assert [field.name for field in descriptor.fields] == [
        field.name for field in msgspec.structs.fields(kind)
    ]


_SCALARS = {
    bool: {"bool"},
    int: {"int32", "int64"},
    float: {"double"},
    str: {"string"},
}


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_types_and_defaults_agree(kind: type[wire.Value]) -> None:
    names = {5: "int32", 3: "int64", 8: "bool", 1: "double", 9: "string"}
    for field in msgspec.structs.fields(kind):
        proto = messages.message_type(kind).DESCRIPTOR.fields_by_name[field.name]
        base: Any = field.type
        if typing.get_origin(base) in (typing.Union, types.UnionType):
            base = next(part for part in typing.get_args(base) if part is not type(None))
        assert proto.is_repeated == (typing.get_origin(base) in (list, dict)), field.name
        if base in _SCALARS:
            assert names[proto.type] in _SCALARS[base], field.name
            zero = base()
            stands_for_zero = field.required or field.default == zero
            assert proto.has_presence == (not stands_for_zero), field.name
        elif isinstance(base, type) and issubclass(base, wire.Value):
            assert proto.message_type.name == base.__name__


def test_enums_agree_name_by_name() -> None:
    assert _enums()
    for kind in _enums():
        descriptor = podwright_v1_pb2.DESCRIPTOR.enum_types_by_name[kind.__name__]
        known = messages.enum_member_by_number(kind, descriptor)
        assert {member for member in known.values() if member} == set(kind)
        assert [number for number, member in known.items() if member is None] in ([], [0])


def test_the_service_has_exactly_the_calls_of_the_table() -> None:
    service = podwright_v1_pb2.DESCRIPTOR.services_by_name["Podwright"]
    assert service.full_name == messages.SERVICE
    assert {
        call.name: (call.input_type.name, call.output_type.name) for call in service.methods
    } == {m.name: (m.request.__name__, m.reply.__name__) for m in METHODS.values()}


def test_no_message_without_a_value() -> None:
    helpers = {"DevicePlace", "Gcd"}
    assert set(podwright_v1_pb2.DESCRIPTOR.message_types_by_name) - helpers == {
        kind.__name__ for kind in VALUES
    }


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: st.integers(-(2**31), 2**31 - 1),
    float: st.floats(allow_nan=False),
}


@functools.cache
def _strategy(kind: Any) -> st.SearchStrategy[Any]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _LEAVES:
        return _LEAVES[kind]
    if origin is list:
        return st.lists(_strategy(inner[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(*(_strategy(part) for part in inner), max_size=2)
    if origin is tuple:
        return st.tuples(*(_strategy(part) for part in inner))
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(_strategy(part) for part in inner))
    if isinstance(kind, type) and issubclass(kind, wire.Value):
        fields = msgspec.structs.fields(kind)
        return st.builds(kind, **{field.name: _strategy(field.type) for field in fields})
    return st.from_type(kind)


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_every_value_survives_its_encoding(kind: type[wire.Value]) -> None:
    @given(_strategy(kind))
    def check(value: wire.Value) -> None:
        assert messages.decode(kind, messages.encode(value)) == value

    check()


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_any_bytes_are_a_value_or_refused(kind: type[wire.Value]) -> None:
    @given(st.binary(max_size=64))
    def check(data: bytes) -> None:
        with contextlib.suppress(wire.InvalidRequest):
            assert isinstance(messages.decode(kind, data), kind)

    check()


def test_what_a_foreign_program_leaves_out_means_the_default() -> None:
    empty = podwright_v1_pb2.CreateRequest(spec={"name": "p"}).SerializeToString()
    assert messages.decode(wire.CreateRequest, empty) == wire.CreateRequest(
        spec=wire.PartitionSpec(name="p")
    )
    assert messages.decode(wire.AcquireRequest, b"\x0a\x00").reset is None


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        ("choose another name", "Choose another name."),
        ("vipu list partitions shows all", "vipu list partitions shows all."),
        ("openssl rand -hex 32 > FILE", "openssl rand -hex 32 > FILE."),
        ("--size 4", "--size 4."),
        ("did you mean p1?", "Did you mean p1?"),
    ],
)
def test_a_hint_is_a_sentence(hint: str, sentence: str) -> None:
    assert wire.InvalidRequest("no", would_work=hint).message == f"no. {sentence}"


def test_a_missing_part_and_an_unknown_number_are_refused() -> None:
    with pytest.raises(wire.InvalidRequest, match="CreateRequest lacks spec"):
        messages.decode(wire.CreateRequest, b"")
    spec = podwright_v1_pb2.PartitionSpec(name="p", routing=77)
    with pytest.raises(
        wire.InvalidRequest, match=r"77 is not a value of Routing\. Choose one of DEFAULT, DNC"
    ):
        messages.from_message(wire.PartitionSpec, spec)


def test_a_number_too_big_is_refused_on_the_way_out() -> None:
    with pytest.raises(wire.InvalidRequest, match="cannot travel"):
        messages.encode(wire.PartitionSpec(name="p", size=2**40))


def test_a_long_refusal_still_fits_the_metadata() -> None:
    refusal = wire.NoCapacity("x" * 90_000, would_work="y" * 9000, free=[1] * 10_000)
    ((key, raw),) = messages.error_metadata(refusal)
    assert key == messages.ERROR_KEY
    assert len(raw) < 4096
    back = wire.error_from_json(json.loads(raw))
    assert type(back) is wire.NoCapacity
    assert back.problem == "x" * 600


def test_the_committed_proto_is_that_of_the_values() -> None:
    committed = ROOT / "src/podwright/wire/podwright_v1.proto"
    assert proto_text() == committed.read_text(), "run `make proto`"


def test_the_committed_messages_are_those_of_the_proto_files(tmp_path: Path) -> None:
    committed = ROOT / "src/podwright/wire/_generated"
    made = generate(tmp_path)
    assert {path.name for path in made} == {path.name for path in committed.glob("*_pb2.py")}
    for path in made:
        assert path.read_text() == (committed / path.name).read_text(), f"run `make proto`: {path}"
