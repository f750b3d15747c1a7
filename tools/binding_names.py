"""Counts bindings whose names tell a reader nothing: `python -m tools.binding_names`.

A binding is a function, class, parameter, variable, loop target or attribute assigned through
`self`. Each scope counts a name once. A room is a folder of `src`. LIMITS has the number of vague
names that each room may still have; a room without an entry may have none. The numbers may only
fall: the check fails when one grows, and also when it has fallen and LIMITS still has the old
number. `--list ROOM` shows what is left, and `--lower` writes the counts of today into LIMITS.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parent.parent / "src"
#: Names that say nothing about what is bound: verbs in the past tense, pronouns, prepositions and
#: places.
VAGUE = frozenset({
    "again", "asked", "at", "away", "bare", "begins", "begun", "beside", "comes", "ended", "ends",
    "every", "found", "goes", "gone", "had", "held", "here", "holds", "inside", "into", "keeps",
    "kept", "laid", "look", "looked", "looks", "made", "makes", "meant", "mine", "most", "o", "of",
    "off", "one", "ones", "others", "over", "proven", "proves", "said", "say", "says", "shown",
    "shows", "some", "stands", "stood", "taken", "tell", "tells", "there", "told", "took", "unsaid",
    "w", "want", "wants", "was", "way", "what", "which", "whole", "why", "wish", "wished", "wishes",
})  # fmt: skip
#: Vague names that a room may still have, by room.
LIMITS: dict[str, int] = {
    "podwright": 2,
    "podwright/agents": 1,
    "podwright/api": 3,
    "podwright/cli/node": 1,
    "podwright/cli/partitions": 2,
    "podwright/cli/replay": 2,
    "podwright/cli/serve": 1,
    "podwright/cli/slurm": 2,
    "podwright/client": 3,
    "podwright/controller/administration": 5,
    "podwright/controller/moves": 1,
    "podwright/controller/partitions": 1,
    "podwright/controller/requests": 1,
    "podwright/controller/state": 1,
    "podwright/fabric": 3,
    "podwright/gate": 5,
    "podwright/gpu/binding": 1,
    "podwright/gpu/efficiency": 3,
    "podwright/gpu/health": 3,
    "podwright/gpu/lint": 5,
    "podwright/gpu/nodebench": 3,
    "podwright/gpu/requests": 1,
    "podwright/gpu/templates": 1,
    "podwright/guests/kubernetes/job": 1,
    "podwright/guests/kubernetes/operator": 2,
    "podwright/guests/slurm/service": 9,
    "podwright/history": 1,
    "podwright/hosts": 7,
    "podwright/hosts/gpus": 1,
    "podwright/http": 2,
    "podwright/launcher/hosts": 2,
    "podwright/launcher/instances": 1,
    "podwright/launcher/plan": 1,
    "podwright/launcher/run": 1,
    "podwright/launcher/watchers": 1,
    "podwright/page": 1,
    "podwright/placement": 7,
    "podwright/replay": 4,
    "podwright/replay/traces": 1,
    "podwright/server": 2,
    "podwright/slurm/twin_service": 1,
    "podwright/store": 11,
    "podwright/timeline": 8,
    "podwright/wire": 6,
    "popdist": 4,
}


class Binding(NamedTuple):
    """scope: the dotted names of the functions and classes around it. line: counted from 1."""

    scope: str
    name: str
    line: int

    @property
    def vague(self) -> bool:
        """Whether the name, without leading underscores, is one of VAGUE."""
        return self.name.lstrip("_") in VAGUE


class _Collector(ast.NodeVisitor):
    def __init__(self) -> None:
        self.bindings: dict[tuple[str, str], Binding] = {}
        self._scope: list[str] = []

    def _bind(self, name: str, line: int) -> None:
        binding = Binding(".".join(self._scope), name, line)
        self.bindings.setdefault(binding[:2], binding)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._bind(node.name, node.lineno)
        self._scope.append(node.name)
        self.generic_visit(node)
        self._scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = _enter

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(isinstance(base, ast.Name) and base.id == "TypedDict" for base in node.bases):
            self._bind(node.name, node.lineno)  # its fields are the keys of a JSON object
        else:
            self._enter(node)

    def visit_arg(self, node: ast.arg) -> None:
        self._bind(node.arg, node.lineno)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = node.value
        if isinstance(node.ctx, ast.Store) and isinstance(owner, ast.Name) and owner.id == "self":
            self._bind(node.attr, node.lineno)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name, node.lineno)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self._bind(node.name, node.lineno)
        self.generic_visit(node)


def bindings(source: str) -> list[Binding]:
    """The bindings of a module, each name once per scope, in the order of the text."""
    collector = _Collector()
    collector.visit(ast.parse(source))
    return list(collector.bindings.values())


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(root.rglob("*.py")):
        if "_generated" not in path.parts:
            yield str(path.parent.relative_to(root)), path


def count(root: Path = SOURCES) -> tuple[Counter[str], Counter[str]]:
    """The vague bindings and all bindings, by room."""
    vague: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for room, path in _modules(root):
        for binding in bindings(path.read_text()):
            total[room] += 1
            vague[room] += binding.vague
    return vague, total


def problems(vague: Counter[str], limits: dict[str, int]) -> list[str]:
    """One line for each room that has more vague names than its limit, or fewer."""
    lines = []
    for room in sorted({*vague, *limits}):
        number, limit = vague[room], limits.get(room, 0)
        if number > limit:
            lines.append(
                f"{room}: {number} vague names, where {limit} are allowed; "
                f"python -m tools.binding_names --list {room} shows them"
            )
        elif number < limit:
            lines.append(
                f"{room}: only {number} vague names are left; "
                "python -m tools.binding_names --lower lowers its limit"
            )
    return lines


def _list(room: str) -> None:
    for path in sorted((SOURCES / room).glob("*.py")):
        for binding in bindings(path.read_text()):
            if binding.vague:
                print(f"{path.relative_to(SOURCES.parent)}:{binding.line}: ", end="")
                print(f"{binding.name} in {binding.scope or 'the module'}")


def _table(vague: Counter[str], total: Counter[str]) -> None:
    for room in sorted(total):
        print(f"{vague[room]:5} of {total[room]:6}  {vague[room] / total[room]:6.1%}  {room}")
    total_share = sum(vague.values()) / max(sum(total.values()), 1)
    print(f"{sum(vague.values()):5} of {sum(total.values()):6}  {total_share:6.1%}  all rooms")


def _lower(vague: Counter[str]) -> None:
    """Write the counts of today into this file, where they are lower than what it allows."""
    rows = "".join(
        f'    "{room}": {min(number, LIMITS.get(room, number))},\n'
        for room, number in sorted(vague.items())
        if number
    )
    path = Path(__file__)
    text = re.sub(
        r"(?ms)^LIMITS: dict\[str, int\] = \{.*?\}$",
        lambda _: "LIMITS: dict[str, int] = {\n" + rows + "}",
        path.read_text(),
        count=1,
    )
    path.write_text(text)


def main() -> int:
    """Compare the counts with LIMITS, or list or lower them. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.binding_names")
    parser.add_argument("--list", metavar="ROOM", help="show the vague names of a room")
    parser.add_argument("--table", action="store_true", help="show the counts by room")
    parser.add_argument("--lower", action="store_true", help="write the counts into LIMITS")
    options = parser.parse_args()
    if options.list is not None:
        _list(options.list)
        return 0
    vague, total = count()
    if options.table:
        _table(vague, total)
    if options.lower:
        _lower(vague)
        return 0
    lines = problems(vague, LIMITS)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
