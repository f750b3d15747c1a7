"""The count of vague names sees every kind of binding, and a room may only lose them.

`make check` counts those of the sources.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools import binding_names

EVERY_KIND = """
class Found:
    def told(self, said, *what, which=1, **why):
        self.held = here = 1
        for one in what:
            here = one
        with open("x") as there, open("y") as (made, (taken, *others)):
            pass
        try:
            pass
        except OSError as gone:
            pass
        match said:
            case [whole] as kept:
                pass
        if (looked := lambda w: w):
            return [o for o in what]

request = said.held = 2
"""


def test_every_kind_of_binding_is_counted_once_in_its_scope() -> None:
    vague = [binding.name for binding in binding_names.bindings(EVERY_KIND) if binding.vague]
    assert sorted(vague) == [
        "gone", "held", "here", "kept", "looked", "made", "o", "one", "others", "said", "taken",
        "there", "told", "w", "what", "which", "whole", "why",
    ]  # fmt: skip


def test_keys_of_a_json_object_do_not_count() -> None:
    source = "class Figures(TypedDict):\n    why: str\n\nclass Row(NamedTuple):\n    which: str\n"
    vague = [binding.name for binding in binding_names.bindings(source) if binding.vague]
    assert vague == ["which"]


def test_a_room_may_have_no_more_than_its_limit(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "_work.py").write_text("found = 1\ntold = 2\nrequest = 3\n")
    vague, total = binding_names.count(tmp_path)
    assert (vague, total) == (Counter(room=2), Counter(room=3))
    assert binding_names.problems(vague, {"room": 2}) == []
    (line,) = binding_names.problems(vague, {"room": 1})
    assert line.startswith("room: 2 vague names, where 1 are allowed; ")
    (line,) = binding_names.problems(vague, {"room": 3})
    assert line.startswith("room: only 2 vague names are left; ")
