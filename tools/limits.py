"""Finds what makes code hard to read: `python -m tools.limits`.

Three limits hold for all of `src/`: the positional parameters of a function, the attributes that a
class assigns through `self`, and the files of a package.

Commands have no logic: they parse, call and print. `work_in_commands` finds the imports and
statements of `cli` by which a command does the work of another room.
"""

from __future__ import annotations

import ast
import re
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

#: The room of the commands. Its package `shared` has the parsers and printers of all of them.
COMMANDS = "podwright/cli"
SHARED = "shared"
#: Modules with which a command would reach the outside itself. Rooms with a seam do that.
OUTSIDE = frozenset({
    "ctypes", "grpc", "hashlib", "http", "multiprocessing", "numpy", "random", "sched", "select",
    "socket", "sqlite3", "struct", "subprocess", "threading", "urllib",
})  # fmt: skip
#: What the classes of a command are: options, rows of a table, the line that says how far it is.
_COMMAND_CLASSES = re.compile(
    r".*(Options|OptionTable|JsonEverywhere|ServerNames|NamedTuple|ProgressLine)"
)
#: What a command may do all the same, and why.
ALLOWED: dict[str, str] = {
    "about/_complete.py: import subprocess": "a shell's completion answers before rooms are loaded",
    "about/_complete.py: class _TooLong": "the alarm that ends a completion",
    "about/_version.py: import subprocess": "asks git for the commit of a working tree",
    "partitions/_tables.py: a loop in a loop over enumerate(sorted(info.attributes))": (
        "lays out a table of V-IPU's, whose first column is not repeated"
    ),
    "vipu_agent.py: while True": "announces the agent for as long as it runs",
}


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


def work_in_commands(root: Path = ROOT, allowed: Mapping[str, str] = ALLOWED) -> list[str]:
    """One sentence for each import and statement by which a command does another room's work."""
    folder = root / COMMANDS
    found = [
        f"{path.relative_to(folder).as_posix()}: {work}"
        for path in sorted(folder.rglob("*.py"))
        if path.parent != folder / SHARED
        for work in _work(ast.parse(path.read_text()))
    ]
    return [
        *(f"{COMMANDS}/{work}: belongs to another room" for work in found if work not in allowed),
        *(f"{COMMANDS}/{work}: is allowed, and not there" for work in allowed if work not in found),
    ]


def _work(tree: ast.Module) -> Iterator[str]:
    """The imports and statements of a module that do more than parse, call and print."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            yield from (f"import {name}" for name in modules if name.split(".")[0] in OUTSIDE)
        elif isinstance(node, ast.While):
            yield f"while {ast.unparse(node.test)}"
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from (
                f"a loop in a loop over {ast.unparse(inner.iter)}"
                for statement in node.body
                for inner in ast.walk(statement)
                if isinstance(inner, ast.For | ast.AsyncFor) and not _prints(inner.body)
            )
        elif isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            if not any(map(_COMMAND_CLASSES.fullmatch, bases)):
                yield f"class {node.name}"


def _prints(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and ast.unparse(body[0]).startswith("print(")


def main() -> int:
    """Print a line for each problem. Returns the exit code."""
    lines = [*problems(), *work_in_commands()]
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
