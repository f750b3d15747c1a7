"""The check of names finds those that two rooms use. `make check` runs it on the sources."""

from __future__ import annotations

from pathlib import Path

from tools import names


def test_what_is_alike_is_found(tmp_path: Path) -> None:
    for room, text in (("one", "class Thing: ...\nclass _Own: ...\n"), ("two", "class Thing: ...")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "_work.py").write_text(text + "\nclass _Own: ...\n")
        (tmp_path / room / "errors.py").write_text("")
    (tmp_path / "one" / "_other.py").write_text("class Thing: ...\n")
    assert names.alike(tmp_path) == {"Thing": ["one", "two"], "work": ["one", "two"]}
