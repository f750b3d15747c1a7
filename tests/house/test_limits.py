"""The check of limits finds what exceeds one. `make check` runs it on the sources."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def command(root: Path, text: str, file: str = "podwright/cli/verbs.py") -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import socket\n", "import socket"),
        ("def run():\n    from urllib.request import urlopen\n", "import urllib.request"),
        ("while wait():\n    pass\n", "while wait()"),
        ("for a in b:\n    for c in a:\n        d = c\n", "a loop in a loop over a"),
        ("class Solver:\n    pass\n", "class Solver"),
    ],
)
def test_a_command_that_does_the_work_of_another_room_is_found(
    tmp_path: Path, text: str, found: str
) -> None:
    command(tmp_path, text)
    assert limits.work_in_commands(tmp_path, {}) == [
        f"podwright/cli/verbs.py: {found}: belongs to another room"
    ]
    assert limits.work_in_commands(tmp_path, {f"verbs.py: {found}": "why"}) == []
    command(tmp_path, "")
    assert limits.work_in_commands(tmp_path, {f"verbs.py: {found}": "why"}) == [
        f"podwright/cli/verbs.py: {found}: is allowed, and not there"
    ]


def test_a_command_may_parse_call_and_print_at_any_length(tmp_path: Path) -> None:
    text = (
        "class _ShowOptions(opt.OptionTable): ...\nfor a in b:\n    for c in a:\n        print(c)\n"
    )
    command(tmp_path, text + "print(1)\n" * 9000)
    command(tmp_path, "while words: pass\n", "podwright/cli/shared/_parser.py")
    assert limits.work_in_commands(tmp_path, {}) == []
