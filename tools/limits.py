"""Counts what makes code hard to read, and refuses more of it: `python -m tools.limits`.

Three limits hold for all of `src/`: the positional parameters of a function, the attributes that a
class assigns through `self`, and the files of a package.Besides, a room of LINES
has at most so many lines.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent / "src"
#: Keyword-only parameters do not count, and neither does `self` or `cls`.
POSITIONAL_PARAMETERS = 6
#: Textual's classes are exempt, since Textual keeps state in attributes.
ASSIGNED_ATTRIBUTES = 20
#: Modules of a package, its `__init__` not among them.
PACKAGE_FILES = 25
_TEXTUAL = ("App", "Screen", "Widget")

#: The most lines of a room, in all its packages. Commands parse, call and print: what else they do
#: belongs to another room. The number may only be lowered.
LINES: dict[str, int] = {"podwright/cli": 7011}


class Count(NamedTuple):
    """How much of something a function, class or package has. name: `file.py:function`."""

    name: str
    quantity: str
    number: int
    limit: int


def counts(root: Path = ROOT) -> Iterator[Count]:
    """Everything that has a limit."""
    for folder in sorted({path.parent for path in root.rglob("*.py")}):
        if "_generated" in folder.parts:
            continue
        files = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
        place = folder.relative_to(root).as_posix()
        yield Count(place, "files", len(files), PACKAGE_FILES)
        for path in files:
            yield from _of_file(path.relative_to(root).as_posix(), ast.parse(path.read_text()))


def _of_file(place: str, tree: ast.Module) -> Iterator[Count]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if any(ast.unparse(base).split("[")[0].endswith(_TEXTUAL) for base in node.bases):
                continue
            name = f"{place}:{node.name}"
            attributes = {target for method in node.body for target in _assigned(method)}
            yield Count(name, "attributes", len(attributes), ASSIGNED_ATTRIBUTES)
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield _positional(f"{name}.{method.name}", method)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _positional(f"{place}:{node.name}", node)


def _positional(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Count:
    parameters = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    parameters = parameters[1:] if parameters[:1] in (["self"], ["cls"]) else parameters
    return Count(name, "positional parameters", len(parameters), POSITIONAL_PARAMETERS)


def _assigned(method: ast.stmt) -> Iterator[str]:
    """The attributes of `self` that a method assigns."""
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def problems(root: Path = ROOT) -> list[str]:
    """One sentence for each count that is not allowed."""
    return [
        f"{count.name}: {count.number} {count.quantity}; at most {count.limit}"
        for count in counts(root)
        if count.number > count.limit
    ]


def long_rooms(root: Path = ROOT, limits: Mapping[str, int] = LINES) -> list[str]:
    """One sentence for each room that has more lines than it may have."""
    sizes = {
        room: sum(len(path.read_text().splitlines()) for path in (root / room).rglob("*.py"))
        for room in limits
    }
    return [
        f"{room}: {size:,} lines; at most {limits[room]:,}"
        for room, size in sizes.items()
        if size > limits[room]
    ]


def main() -> int:
    """Print a line for each problem. Returns the exit code."""
    lines = [*problems(), *long_rooms()]
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
