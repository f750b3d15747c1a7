"""No new name is used in two rooms, and the check itself finds those that would be."""

from __future__ import annotations

from pathlib import Path

from tools import names


def test_nothing_new_is_called_alike() -> None:
    assert names.main() == 0


def test_what_is_alike_is_found(tmp_path: Path) -> None:
    for room, text in (("one", "class Thing: ...\nclass _Own: ...\n"), ("two", "class Thing: ...")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "_work.py").write_text(text + "\nclass _Own: ...\n")
        (tmp_path / room / "errors.py").write_text("")
    (tmp_path / "one" / "_other.py").write_text("class Thing: ...\n")
    assert names.alike(tmp_path) == {"Thing": ["one", "two"], "work": ["one", "two"]}
