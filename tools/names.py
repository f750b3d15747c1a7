"""Finds names that mislead a reader: `python -m tools.names`.

A room is a folder of `src/podwright`. Two faults are found:

- One name for two things: classes and modules that are called alike in different rooms. They make a
  reader look twice and a search find too much. Where two rooms do mean the same by a word, ALIKE
  says why.
- Two names for one thing: a module that is imported as `steps` here and as `acts` there, and an
  environment variable or path whose constant has different names.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
ROOT = SOURCES / "podwright"
#: Modules below `cli` are named by the verb, which is named by what it is about.
COMMANDS = "cli"
#: What may be called alike, and why.
ALIKE: dict[str, str] = {
    "errors": "the error tree of a room",
    "values": "what a room takes and gives, as values",
    "Granted": "an answer to a request",
    "Waits": "an answer to a request",
    "Refused": "an answer to a request",
}
#: Values that mean one thing wherever they stand: environment variables, absolute paths.
_ONE_THING_PATTERN = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|/[\w.-]+(/[\w.-]+)+")


def modules_and_classes(root: Path) -> Iterator[tuple[str, str]]:
    """Each module and each public class, with its room."""
    for path in _modules(root):
        room = str(path.parent.relative_to(root))
        if path.stem.startswith("__"):
            continue
        if room.split("/")[0] != COMMANDS:
            yield path.stem.lstrip("_"), room
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, room


def alike(root: Path = ROOT) -> dict[str, list[str]]:
    """Names that stand in several rooms, and in which."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, room in modules_and_classes(root):
        found[name].add(room)
    return {
        name: sorted(rooms)
        for name, rooms in sorted(found.items())
        if len(rooms) > 1 and name not in ALIKE
    }


def two_names(root: Path = SOURCES) -> dict[str, dict[str, str]]:
    """Modules, and values of constants, that have several names; each name with one of its
    files.
    """
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for path in _modules(root):
        file = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text())
        for module, name in _module_aliases(tree):
            names[module].setdefault(name, file)
        for value, name in _constants(tree):
            names[value].setdefault(name.lstrip("_"), file)
    return {thing: files for thing, files in sorted(names.items()) if len(files) > 1}


def _modules(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*.py")) if "_generated" not in path.parts)


def _module_aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each private module that is imported by another name, and the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname and alias.name.startswith("_"):
                    yield f"{node.module}.{alias.name}", alias.asname


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each value of a constant that means one thing everywhere, and the constant's name."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if not (isinstance(node, ast.Assign | ast.AnnAssign) and targets):
            continue
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if isinstance(value, str) and _ONE_THING_PATTERN.fullmatch(value):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield value, target.id


def main() -> int:
    """One line for each. Returns the exit code."""
    wrong = [
        f"{name} is in {' and in '.join(rooms)}: give them names that differ"
        for name, rooms in alike().items()
    ]
    wrong += [
        f"{thing} is {' and '.join(f'{name} in {file}' for name, file in files.items())}: "
        "give it one name"
        for thing, files in two_names().items()
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
