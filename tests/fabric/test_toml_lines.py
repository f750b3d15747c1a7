"""The walk that finds the lines of keys, against tomllib's own reading."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podwright.fabric._toml_line_numbers import Path, key_lines

TRICKY = '''\
a = "x = [1, # no"  # b = 2
"q k".c = 1
text = """
fake = 1
[fake]
"""
raw = \'\'\'
k = "'\'\'\'
nested = [ [1, 2],
  { x = 1, y = [ "]", \'}\' ] },
]
date = 2024-01-01T00:00:00Z
[t.u]
v = 1
[[arr]]
x = 1
[[arr]]
[arr.sub]
y = 1
[[arr.more]]
z = 1
[[arr.more]]
z = 2
'''


def paths(value: Any, at: Path = ()) -> set[Path]:
    """The path of every key and item in a tree that tomllib made."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    out: set[Path] = set()
    for key, inner in pairs:
        out.add((*at, key))
        if isinstance(inner, dict | list):
            out |= paths(inner, (*at, key))
    return out


def test_tricky_text() -> None:
    lines = key_lines(TRICKY)
    tree = tomllib.loads(TRICKY)
    assert paths(tree) - set(lines) <= {("t",), ("arr",), ("arr", 1, "more")}
    assert lines["a",] == 1
    assert lines["q k", "c"] == 2
    assert lines["raw",] == 7
    assert lines["nested", 1, "y", 1] == 10
    assert lines["date",] == 12
    assert lines["t", "u", "v"] == 14
    assert lines["arr", 1, "sub", "y"] == 19
    assert lines["arr", 1, "more", 1, "z"] == 23


keys = st.text("abcxyz_-0", min_size=1, max_size=4)
scalars = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.text("ab\"\\#[]{}=,'", max_size=6),
)
trees = st.dictionaries(
    keys,
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=6),
    max_size=5,
)


@given(trees, st.integers(0, 2))
def test_every_key_is_found_where_it_was_written(tree: dict[str, Any], gap: int) -> None:
    text = "".join(
        f"{'# c = [' + chr(10)}" * gap + f"{k} = {json.dumps(v)}\n" for k, v in tree.items()
    )
    assert tomllib.loads(text) == tree
    lines = key_lines(text)
    assert set(lines) == paths(tree)
    for number, key in enumerate(tree):
        assert lines[key,] == number * (gap + 1) + gap + 1
