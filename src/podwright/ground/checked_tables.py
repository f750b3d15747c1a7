"""Tables that people write in TOML or JSON become structs, or an error that names the key.

The description of a field's `Meta` completes "is 5, and not …".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

Table = TypeVar("Table")
KeyPath = tuple[str | int, ...]
_TYPE_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "a whole number",
    inspect.StrType: "a text",
    inspect.StructType: "a table",
    inspect.VarTupleType: "a list",
}


class BadTable(ValueError):
    """A value that is not what its table needs. would_work: a sentence, or empty."""

    def __init__(self, key_path: KeyPath, problem: str, would_work: str = "") -> None:
        super().__init__(problem)
        self.key_path, self.problem, self.would_work = key_path, problem, would_work


def checked(tree: Any, table_type: type[Table]) -> Table:
    """Return a tree of tables as a struct. Raises BadTable for the first fault."""
    try:
        return msgspec.convert(tree, table_type)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
    key_path: KeyPath = ()
    infos = [inspect.type_info(table_type)]
    for key, index in re.findall(r"\.(\w+)|\[(\d+)\]", place):
        part = int(index) if index else key
        key_path, tree = (*key_path, part), tree[part]
        infos = [inner for info in infos for inner in _inner(info, part)]
    word = message.partition("`")[2].partition("`")[0]
    if message.startswith("Object contains unknown field"):
        keys = [field.encode_name for info in infos for field in _fields(info)]
        raise BadTable((*key_path, word), "is not a known key", nearest(word, keys))
    if message.startswith("Object missing required field"):
        raise BadTable((*key_path, word), "is missing")
    for info in infos:
        if isinstance(info, inspect.EnumType):
            choices = [str(choice.value) for choice in info.cls]
            raise BadTable(key_path, f"{tree!r} is not known", nearest(str(tree), choices))
    wanted = " or ".join(text for info in infos for text in _descriptions(info))
    raise BadTable(key_path, f"is {tree!r}, and not {wanted or message}")


def nearest(word: str, known_words: Iterable[str]) -> str:
    """Return a hint that names the nearest known word, in place of one that is not known."""
    import difflib

    known_words = list(known_words)
    matches = difflib.get_close_matches(word.lower(), known_words, n=1)
    return f"Did you mean {matches[0]}?" if matches else f"There are: {', '.join(known_words)}"


def dotted(key_path: KeyPath) -> str:
    """Return `nodes[0].gpus`."""
    texts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path)
    return "".join(texts).lstrip(".")


def _descriptions(info: inspect.Type) -> Iterator[str]:
    if isinstance(info, inspect.UnionType):
        for each in info.types:
            yield from _descriptions(each)
    elif isinstance(info, inspect.Metadata) and info.extra_json_schema:
        yield info.extra_json_schema["description"]
    elif type(info) in _TYPE_WORDS:
        yield _TYPE_WORDS[type(info)]


def _fields(info: inspect.Type) -> list[inspect.Field]:
    if isinstance(info, inspect.UnionType):
        return [field for each in info.types for field in _fields(each)]
    return list(info.fields) if isinstance(info, inspect.StructType) else []


def _inner(info: inspect.Type, part: str | int) -> list[inspect.Type]:
    """Return the types that a key or an item may have in a value of this type."""
    if isinstance(info, inspect.Metadata):
        return _inner(info.type, part)
    if isinstance(info, inspect.UnionType):
        return [inner for each in info.types for inner in _inner(each, part)]
    if isinstance(info, inspect.VarTupleType):
        return [info.item_type]
    return [field.type for field in _fields(info) if field.encode_name == part]
