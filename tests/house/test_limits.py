"""The check of limits finds what exceeds one. `make check` runs it on the sources."""

from __future__ import annotations

from pathlib import Path

from tools import limits

SEVEN = "a, b, c, d, e, f, g"


def source(root: Path, text: str) -> None:
    (root / "room").mkdir(parents=True)
    (root / "room" / "_work.py").write_text(text)


def test_parameters_that_are_positional_count_and_others_do_not(tmp_path: Path) -> None:
    source(
        tmp_path,
        f"def many({SEVEN}): ...\n"
        "def keyword_only(a, b, c, d, e, f, *, g): ...\n"
        f"class Worker:\n    def method(self, {SEVEN}): ...\n"
        "    def six(self, a, b, c, d, e, f): ...\n",
    )
    assert limits.problems(tmp_path) == [
        "room/_work.py:Worker.method: 7 positional parameters; at most 6",
        "room/_work.py:many: 7 positional parameters; at most 6",
    ]


def test_attributes_are_counted_once_and_in_all_methods(tmp_path: Path) -> None:
    twenty = "".join(f"        self.a{number} = self.a0 = 1\n" for number in range(20))
    text = f"class Worker:\n    def __init__(self):\n{twenty}"
    source(tmp_path, text)
    assert limits.problems(tmp_path) == []
    more = "    def more(self):\n        self.a20, self.a3 = 1, 2\n"
    (tmp_path / "room" / "_work.py").write_text(text + more)
    assert limits.problems(tmp_path) == ["room/_work.py:Worker: 21 attributes; at most 20"]


def test_files_of_a_package_are_counted(tmp_path: Path) -> None:
    source(tmp_path, "")
    for number in range(25):
        (tmp_path / "room" / f"_{number}.py").touch()
    assert limits.problems(tmp_path) == ["room: 26 files; at most 25"]


def test_lines_of_a_room_are_counted_in_all_its_packages(tmp_path: Path) -> None:
    source(tmp_path, "a = 1\nb = 2\n")
    (tmp_path / "room" / "below").mkdir()
    (tmp_path / "room" / "below" / "_deep.py").write_text("c = 3\n")
    assert limits.long_rooms(tmp_path, {"room": 3}) == []
    assert limits.long_rooms(tmp_path, {"room": 2}) == ["room: 3 lines; at most 2"]
