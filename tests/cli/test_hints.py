"""The advice in refusals can be typed: every command and option in a hint exists.

The hints are read from the source, so that none is forgotten. A placeholder for a name (`{…}`) may
be anything.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import podwright
from podwright.cli.about._command_parsers import COMMANDS, parser_of

#: Arguments of errors and findings that say what to do next.
HINTS = ("would_work", "todo")
#: Options of Slurm's that hints name.
FOREIGN = frozenset({"--gpus-per-node"})
_NAMES = "|".join(sorted(COMMANDS, key=len, reverse=True))
#: A command, and its words as far as the next one, or a mark that ends it.
_COMMAND = re.compile(rf"(?<![\w/.-])({_NAMES}) ((?:(?!(?:{_NAMES}) )[^;:|`])*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def words_of(node: ast.expr) -> str:
    """The text of a string that the source writes, whatever it is made of."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(words_of(part) for part in parts)
        case ast.FormattedValue():
            return "{}"
        case ast.BinOp(left=left, right=right):
            return words_of(left) + words_of(right)
        case ast.IfExp(body=one, orelse=other):
            return f"{words_of(one)}; {words_of(other)}"
        case _:
            return ""


def hints() -> Iterator[tuple[str, str]]:
    """Where each hint stands, and its words."""
    source = Path(podwright.__file__).parent
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        if not any(hint in text for hint in HINTS):
            continue  # half of the files have none: reading their syntax takes a second
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.keyword) and node.arg in HINTS:
                yield f"{path.relative_to(source)}:{node.value.lineno}", words_of(node.value)


def below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """A command's verbs."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def every_option(parser: argparse.ArgumentParser) -> set[str]:
    """A command's and its verbs'."""
    found = options(parser)
    for verb in below(parser).values():
        found |= every_option(verb)
    return found


parser_for = cache(parser_of)


def wrong_in(command: str, rest: str) -> list[str]:
    """The options behind a command, and its verbs if there are any, that these do not have."""
    parser = parser_for(command)
    known = options(parser)
    said, at = command, rest.split()
    while at and (verbs := below(parser)) and at[0].strip(",.)") in verbs:
        said += f" {at[0]}"
        parser = verbs[at[0].strip(",.)")]
        known |= options(parser)
        at = at[1:]
    # Verbs may follow prose ("vipu-server with --agent-key"): then any of its own will do.
    if below(parser):
        known |= every_option(parser)
    own = " ".join(at).split(" -- ")[0]
    return [f"{said} {option}" for option in _OPTION.findall(own) if option not in known]


def test_every_hint_names_commands_and_options_that_there_are() -> None:
    known = set().union(*(every_option(parser_for(command)) for command in COMMANDS)) | FOREIGN
    wrong, seen = [], 0
    for place, text in hints():
        for command, rest in _COMMAND.findall(text):
            seen += 1
            wrong += [f"{place}: {what}" for what in wrong_in(command, rest)]
        wrong += [f"{place}: {o}" for o in _OPTION.findall(text) if o not in known]
    assert seen > 50
    assert wrong == []


def test_the_check_finds_what_is_wrong() -> None:
    assert wrong_in("vipu-admin", "create agent ag1 --replace") == []
    wrong = ["vipu-admin create agent --nothing"]
    assert wrong_in("vipu-admin", "create agent ag1 --nothing") == wrong
    assert wrong_in("vipu", "remove partition p1 --preset") == ["vipu remove partition --preset"]
