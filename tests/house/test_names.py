"""The check of names finds those that two rooms use. `make check` runs it on the sources."""

from __future__ import annotations

from pathlib import Path

from tools import names


def test_two_classes_or_modules_of_one_name_are_found(tmp_path: Path) -> None:
    for room, text in (("one", "class Thing: ...\nclass _Own: ...\n"), ("two", "class Thing: ...")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "_work.py").write_text(text + "\nclass _Own: ...\n")
        (tmp_path / room / "errors.py").write_text("")
    (tmp_path / "one" / "_other.py").write_text("class Thing: ...\n")
    assert names.alike(tmp_path) == {"Thing": ["one", "two"], "work": ["one", "two"]}


def test_what_has_two_names_is_found(tmp_path: Path) -> None:
    for file, text in (
        ("one", 'from room import _work as work\nSOCKET_VARIABLE = "PODWRIGHT_SOCKET"\n'),
        ("two", 'from room import _work as acts\n_SOCKET: str = "PODWRIGHT_SOCKET"\n'),
        ("three", 'from room import _rest as rest\n_FOLDER = "/run/podwright"\nWORD = "pod"\n'),
        ("four", 'from room import _rest as rest\nFOLDER = "/run/podwright"\nTERM = "pod"\n'),
    ):
        (tmp_path / f"{file}.py").write_text(text)
    assert names.two_names(tmp_path) == {
        "PODWRIGHT_SOCKET": {"SOCKET_VARIABLE": "one.py", "SOCKET": "two.py"},
        "room._work": {"acts": "two.py", "work": "one.py"},
    }
