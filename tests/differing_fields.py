"""Which fields of two values differ, by their paths: two values of the wire printed whole are pages
in which nobody finds the one number that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec


def differing_fields(value: object, expected: object, path: str = "") -> list[str]:
    """Return a line for each place at which the two differ: `partitions[0].age: 1.5, not 2.0`."""
    return list(_differing(value, expected, path))


def _differing(value: object, expected: object, path: str) -> Iterator[str]:
    if value == expected:
        return
    pairs = list(_pairs(value, expected, path))
    if not pairs:
        yield f"{path or 'the value'}: {value!r}, not {expected!r}"
    for inner_path, inner, inner_expected in pairs:
        yield from _differing(inner, inner_expected, inner_path)


def _pairs(value: object, expected: object, path: str) -> Iterator[tuple[str, object, object]]:
    """Yield what the two have at the same places; nothing where they are not of one shape."""
    if isinstance(value, msgspec.Struct) and type(value) is type(expected):
        for name in value.__struct_fields__:
            yield f"{path}.{name}".lstrip("."), getattr(value, name), getattr(expected, name)
    elif isinstance(value, Mapping) and isinstance(expected, Mapping):
        if value.keys() == expected.keys():
            for key in value:
                yield f"{path}.{key}".lstrip("."), value[key], expected[key]
    elif isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        if type(value) is not type(expected) or len(value) != len(expected):
            return
        for index, (inner, inner_expected) in enumerate(zip(value, expected, strict=True)):
            yield f"{path}[{index}]", inner, inner_expected
