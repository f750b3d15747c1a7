"""`make proto`: it writes everything or nothing, and says what is in its way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools import generate_wire, write_proto

from podwright.wire import METHODS, Empty, Method, Value
from podwright.wire._methods import by_name


class Ping(Value):
    """A value that is called like a call."""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what `make proto` reads and writes."""
    made = tmp_path / "src"
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(generate_wire.SOURCE / "podwright/wire", made / "podwright/wire", ignore=leave)
    monkeypatch.setattr(generate_wire, "SOURCE", made)
    return made


def contents(source: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(source.rglob("*")) if p.is_file()}


def with_call(monkeypatch: pytest.MonkeyPatch, name: str, request: type[Value]) -> None:
    monkeypatch.setattr(write_proto, "METHODS", {**METHODS, name: Method(name, request, Empty)})


def test_what_is_committed_is_what_the_values_make(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate_wire.main(["--check"]) == 0
    assert capsys.readouterr().err == ""


def test_a_call_and_a_value_of_one_name_are_explained_and_nothing_is_written(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_call(monkeypatch, "Ping", Ping)
    before = contents(source)
    assert generate_wire.main([]) == 1
    assert contents(source) == before
    assert capsys.readouterr().err == (
        "make proto: the call Ping is called like the value Ping of tests.wire.test_make_proto: "
        "give one of them another name. Nothing was written.\n"
    )


def test_two_values_of_one_name_are_explained(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_call(monkeypatch, "Pong", type("Named", (Value,), {"__doc__": "Another one."}))
    assert generate_wire.main([]) == 1
    assert "the value Named of " in capsys.readouterr().err


def test_two_calls_of_one_name_are_refused() -> None:
    ping = Method("Ping", Empty, Empty)
    with pytest.raises(ValueError, match="two calls are named Ping"):
        by_name([ping, ping])


def test_nothing_is_written_where_the_compiler_refuses_a_file(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "podwright/wire/virmgrpc.proto").write_text('syntax = "proto3"; message {')
    (source / "podwright/wire/podwright_v1.proto").write_text("old")
    before = contents(source)
    assert generate_wire.main([]) == 1
    assert contents(source) == before
    assert "Nothing was written" in capsys.readouterr().err


def test_nothing_is_put_in_place_where_one_file_cannot_be(source: Path, tmp_path: Path) -> None:
    before = contents(source)
    new = tmp_path / "new"
    new.write_text("new")
    wire = source / "podwright/wire"
    made = {wire / "podwright_v1.proto": new, wire / "virmgrpc.proto": tmp_path / "missing"}
    with pytest.raises(FileNotFoundError):
        generate_wire.put_in_place(made)
    assert contents(source) == before


def test_a_stale_file_fails_the_check_and_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_call(monkeypatch, "Pong", Ping)
    before = contents(source)
    assert generate_wire.main(["--check"]) == 1
    assert contents(source) == before
    printed = capsys.readouterr().err
    assert (
        "podwright_v1.proto is not what the values in podwright/wire make: run make proto"
        in printed
    )
    assert "podwright_v1_pb2.py" in printed
    assert generate_wire.main([]) == 0
    assert generate_wire.main(["--check"]) == 0
