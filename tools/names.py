"""Finds classes and modules that are called alike in different rooms: `python -m tools.names`.

A room is a folder of `src/podwright`. Names that are alike make a reader look twice and a search
find too much. Where two rooms do mean the same by a word, ALIKE says why.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "podwright"
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


def modules_and_classes(root: Path) -> Iterator[tuple[str, str]]:
    """Each module and each public class, with its room."""
    for path in sorted(root.rglob("*.py")):
        room = str(path.parent.relative_to(root))
        if path.stem.startswith("__") or "_generated" in path.parts:
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


def main() -> int:
    """One line for each. Returns the exit code."""
    wrong = [
        f"{name} is in {' and in '.join(rooms)}: give them names that differ"
        for name, rooms in alike().items()
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
